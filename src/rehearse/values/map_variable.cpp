#include "rehearse/values/host_names.h"
#include "rehearse/values/request_line.h"
#include "rehearse/values/variables.h"

#include <optional>

namespace ratelimit::rehearse {

namespace {

/// The variable of a `map`: first exact texts, whatever their case, then with `hostnames` the
/// longest wildcard, then the first regular expression that matches, then the default.
class Map {
public:
    Map(Scope& scope, const Directive& directive)
        : source_(scope.compile(directive.args[0], directive.place))
    {
        for (const Directive& entry : directive.block) {
            hostnames_ = hostnames_ || (entry.name == "hostnames" && entry.args.empty());
        }
        for (const Directive& entry : directive.block) {
            if (!entry.args.empty() || (entry.name != "hostnames" && entry.name != "volatile")) {
                add(scope, entry);
            }
        }
    }

    std::string_view operator()(Values& values, std::string& own) const
    {
        std::string text(source_.value(values, own));
        if (hostnames_ && text.ends_with('.')) {
            text.pop_back();
        }
        if (const Expression* found = texts_.find(lower(text))) {
            return found->value(values, own);
        }
        std::vector<std::string_view> captures;
        for (const Pattern& pattern : patterns_) {
            if (pattern.regex.matches(text, captures)) {
                const std::string value(pattern.value.value(values, own, captures));
                own = value;  // the captures end with `text`
                return own;
            }
        }
        return default_ ? default_->value(values, own) : std::string_view();
    }

private:
    struct Pattern {
        Regex regex;
        Expression value;
    };

    void add(Scope& scope, const Directive& entry)
    {
        if (entry.args.size() != 1 || entry.has_block) {
            fail_at(entry.place, "invalid number of the map parameters");
        }
        std::string key = entry.name;
        if (key.starts_with('~')) {
            const bool caseless = key.starts_with("~*");
            Regex regex(key.substr(caseless ? 2 : 1), caseless, entry.place);
            Expression value = scope.compile(entry.args[0], entry.place, &regex);
            patterns_.push_back({ std::move(regex), std::move(value) });
            return;
        }
        Expression value = scope.compile(entry.args[0], entry.place);
        if (key == "default") {
            default_ = std::move(value);
            return;
        }
        if (key.starts_with('\\')) {
            key.erase(0, 1);
        }
        texts_.add(lower(key), value, hostnames_);
    }

    Expression source_;
    bool hostnames_ = false;
    HostNames<Expression> texts_;
    std::vector<Pattern> patterns_;
    std::optional<Expression> default_;
};

}  // namespace

Variable::Function make_map(Scope& scope, const Directive& directive)
{
    return Map(scope, directive);
}

}  // namespace ratelimit::rehearse

#include "rehearse/values/request_line.h"
#include "rehearse/values/variables.h"

#include <optional>
#include <unordered_map>

namespace ratelimit::rehearse {

namespace {

/// A value of a map, which may refer to captures of the regular expression that has matched.
class Replacement {
public:
    Replacement(Scope& scope, std::string_view text, const Place& place, const Regex* regex)
    {
        std::string literal;
        const auto flush = [&] {
            if (!literal.empty()) {
                parts_.push_back({ literal, nullptr, {} });
                literal.clear();
            }
        };
        while (!text.empty()) {
            if (text.front() != '$') {
                literal += text.front();
                text.remove_prefix(1);
                continue;
            }
            const std::string name = take_variable(text);
            if (name.empty()) {
                fail_at(place, "invalid variable name");
            }
            flush();
            const auto capture = capture_of(regex, name);
            parts_.push_back({ {}, capture ? nullptr : scope.find(name, place), capture });
        }
        flush();
    }

    std::string_view value(
        Values& values, std::string& own, const std::vector<std::string_view>& captures) const
    {
        if (parts_.empty()) {
            return {};
        }
        if (parts_.size() == 1) {
            return text_of(parts_.front(), values, captures);
        }
        own.clear();
        for (const Part& part : parts_) {
            own += text_of(part, values, captures);
        }
        return own;
    }

private:
    struct Part {
        std::string literal;
        const Variable* variable;
        std::optional<std::size_t> capture;
    };

    static std::optional<std::size_t> capture_of(const Regex* regex, const std::string& name)
    {
        if (regex == nullptr) {
            return std::nullopt;
        }
        if (name.size() == 1 && name[0] >= '1' && name[0] <= '9') {
            return static_cast<std::size_t>(name[0] - '0');
        }
        const auto found = regex->names().find(name);
        return found == regex->names().end() ? std::nullopt : std::optional(found->second);
    }

    static std::string_view text_of(
        const Part& part, Values& values, const std::vector<std::string_view>& captures)
    {
        if (part.capture) {
            return *part.capture < captures.size() ? captures[*part.capture] : std::string_view();
        }
        return part.variable == nullptr ? std::string_view(part.literal)
                                        : part.variable->value(values);
    }

    std::vector<Part> parts_;
};

/// The variable of a `map`: first exact texts, whatever their case, then with `hostnames` the
/// longest wildcard, then the first regular expression that matches, then the default.
class Map : public Variable {
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

private:
    struct Pattern {
        Regex regex;
        Replacement value;
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
            Replacement value(scope, entry.args[0], entry.place, &regex);
            patterns_.push_back({ std::move(regex), std::move(value) });
            return;
        }
        Replacement value(scope, entry.args[0], entry.place, nullptr);
        if (key == "default") {
            default_ = std::move(value);
            return;
        }
        if (key.starts_with('\\')) {
            key.erase(0, 1);
        }
        key = lower(key);
        if (hostnames_ && key.starts_with('.')) {
            texts_.try_emplace(key.substr(1), value);
            heads_.try_emplace(key, std::move(value));
        } else if (hostnames_ && key.starts_with("*.")) {
            heads_.try_emplace(key.substr(1), std::move(value));
        } else if (hostnames_ && key.ends_with(".*")) {
            tails_.try_emplace(key.substr(0, key.size() - 1), std::move(value));
        } else {
            texts_.try_emplace(key, std::move(value));
        }
    }

    const Replacement* find_wildcard(const std::string& key) const
    {
        for (auto dot = key.find('.'); dot != key.npos; dot = key.find('.', dot + 1)) {
            const auto found = heads_.find(key.substr(dot));
            if (found != heads_.end() && dot > 0) {
                return &found->second;
            }
        }
        for (auto dot = key.rfind('.'); dot != key.npos && dot > 0; dot = key.rfind('.', dot - 1)) {
            const auto found = tails_.find(key.substr(0, dot + 1));
            if (found != tails_.end()) {
                return &found->second;
            }
        }
        return nullptr;
    }

    std::string_view compute(Values& values, std::string& own) const override
    {
        std::string text(source_.value(values, own));
        if (hostnames_ && text.ends_with('.')) {
            text.pop_back();
        }
        const std::string key = lower(text);
        if (const auto found = texts_.find(key); found != texts_.end()) {
            return found->second.value(values, own, {});
        }
        if (const Replacement* found = hostnames_ ? find_wildcard(key) : nullptr) {
            return found->value(values, own, {});
        }
        std::vector<std::string_view> captures;
        for (const Pattern& pattern : patterns_) {
            if (pattern.regex.matches(text, captures)) {
                const std::string value(pattern.value.value(values, own, captures));
                own = value;  // the captures end with `text`
                return own;
            }
        }
        return default_ ? default_->value(values, own, {}) : std::string_view();
    }

    Expression source_;
    bool hostnames_ = false;
    std::unordered_map<std::string, Replacement> texts_;
    std::unordered_map<std::string, Replacement> heads_;  // ".example.com"
    std::unordered_map<std::string, Replacement> tails_;  // "www.example."
    std::vector<Pattern> patterns_;
    std::optional<Replacement> default_;
};

}  // namespace

std::unique_ptr<Variable> make_map(Scope& scope, const Directive& directive)
{
    return std::make_unique<Map>(scope, directive);
}

}  // namespace ratelimit::rehearse

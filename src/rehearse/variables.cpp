#include "rehearse/variables.h"

#include "rehearse/address.h"
#include "rehearse/request_line.h"

#include <algorithm>
#include <functional>
#include <optional>

namespace ratelimit::rehearse {

namespace {

class Logged : public Variable {
public:
    explicit Logged(std::size_t index) : index_(index) {}

private:
    std::string_view compute(Values& values, std::string& own) const override
    {
        const std::string_view text = values.record().value(index_);
        if (text == "-") {
            return {};
        }
        if (values.escape() == Escape::none || text.find('\\') == std::string_view::npos) {
            return text;
        }
        unescape(text, values.escape(), own);
        return own;
    }

    std::size_t index_;
};

class Constant : public Variable {
public:
    explicit Constant(std::string text) : text_(std::move(text)) {}

private:
    std::string_view compute(Values&, std::string&) const override { return text_; }

    std::string text_;
};

/// A variable that is computed from another one.
class Derived : public Variable {
public:
    using Function = std::function<std::string_view(std::string_view source, std::string& own)>;
    Derived(const Variable* source, Function function)
        : source_(source), function_(std::move(function))
    {
    }

private:
    std::string_view compute(Values& values, std::string& own) const override
    {
        return function_(source_->value(values), own);
    }

    const Variable* source_;
    Function function_;
};

/// An expression, as of `set`.
class Computed : public Variable {
public:
    explicit Computed(Expression expression) : expression_(std::move(expression)) {}

private:
    std::string_view compute(Values& values, std::string& own) const override
    {
        return expression_.value(values, own);
    }

    Expression expression_;
};

bool is_name(char letter) noexcept
{
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')
        || (letter >= '0' && letter <= '9') || letter == '_';
}

std::string_view path_of(std::string_view uri, std::string& own)
{
    return normalized_path(uri, own).value_or(std::string_view());
}

}  // namespace

const Variable* Variables::logged(std::string_view name)
{
    const auto known = logged_.find(name);
    if (known != logged_.end()) {
        return known->second;
    }
    const auto& names = format_.names();
    const auto found = std::find(names.begin(), names.end(), name);
    const Variable* variable = nullptr;
    if (found != names.end()) {
        variable = own(std::make_unique<Logged>(wanted_.size()));
        wanted_.push_back(static_cast<std::size_t>(found - names.begin()));
    }
    logged_.emplace(name, variable);
    return variable;
}

/// From the request as the client sent it, since $uri at the end of a request may be another.
const Variable* Variables::path()
{
    if (path_ != nullptr) {
        return path_;
    }
    if (const Variable* uri = logged("request_uri")) {
        path_ = own(std::make_unique<Derived>(uri, path_of));
    } else if (const Variable* line = logged("request")) {
        path_ = own(std::make_unique<Derived>(line, [](std::string_view text, std::string& out) {
            const auto parts = parse_request_line(text);
            return parts ? path_of(parts->uri, out) : std::string_view();
        }));
    } else if (const Variable* logged_path = logged("uri")) {
        path_ = logged_path;
    } else {
        path_ = logged("document_uri");
    }
    return path_;
}

std::string take_variable(std::string_view& text)
{
    const bool braces = text.size() > 1 && text[1] == '{';
    const std::size_t start = braces ? 2 : 1;
    std::size_t end = start;
    while (end < text.size() && is_name(text[end])) {
        ++end;
    }
    if (end == start || (braces && (end == text.size() || text[end] != '}'))) {
        return {};
    }
    // $1 is one digit, whatever follows it.
    if (!braces && text[start] >= '1' && text[start] <= '9') {
        end = start + 1;
    }
    std::string name(text.substr(start, end - start));
    text.remove_prefix(braces ? end + 1 : end);
    return name;
}

void Scope::add_set(const Directive& directive, bool in_if)
{
    if (directive.args.size() != 2 || !directive.args[0].starts_with('$')) {
        fail_at(directive.place, "\"set\" must have a variable and a value");
    }
    const std::string name = directive.args[0].substr(1);
    Set added{ directive.args[1], directive.place, nullptr, in_if };
    const auto found = sets_.find(name);
    if (found != sets_.end()) {
        overridden_.push_back(std::make_unique<Set>(std::move(found->second)));
        added.before = overridden_.back().get();
    }
    sets_[name] = std::move(added);
}

void Scope::add_captures(const Regex& regex, const Variable* subject)
{
    for (const auto& [name, number] : regex.names()) {
        captures_[name] = { &regex, subject, number };
    }
}

Expression Scope::compile(std::string_view text, const Place& place)
{
    std::vector<Expression::Part> parts;
    const auto literal = [&parts]() -> std::string& {
        if (parts.empty() || parts.back().variable != nullptr) {
            parts.emplace_back();
        }
        return parts.back().literal;
    };
    while (!text.empty()) {
        if (text.front() != '$') {
            const auto next = std::min(text.find('$'), text.size());
            literal() += text.substr(0, next);
            text.remove_prefix(next);
            continue;
        }
        const std::string name = take_variable(text);
        if (name.empty()) {
            fail_at(place, "invalid variable name");
        }
        parts.push_back({ {}, find(name, place) });
    }
    return Expression(std::move(parts));
}

const Variable* Scope::find(std::string_view name, const Place& place)
{
    const auto known = known_.find(name);
    if (known != known_.end()) {
        return known->second;
    }
    const std::string own_name(name);
    if (!in_progress_.insert(own_name).second) {
        fail_at(place, "the variable \"$" + own_name + "\" depends on itself");
    }
    const Variable* variable = make(own_name, place);
    if (variable == nullptr) {
        fail_at(
            place,
            "the variable \"$" + own_name + "\" is not in " + variables_.log_title()
                + ", and cannot be computed from what is there,");
    }
    in_progress_.erase(own_name);
    known_[own_name] = variable;
    return variable;
}

/// A variable with the value of the last `set`. The value may refer to an earlier one.
const Variable* Scope::make_set(const std::string& name, const Set& set)
{
    if (set.in_if) {
        fail_at(
            set.place,
            "the variable \"$" + name + "\" is set within \"if\", which cannot be followed,");
    }
    if (set.before != nullptr) {
        in_progress_.erase(name);
        known_[name] = make_set(name, *set.before);
        in_progress_.insert(name);
    }
    const Variable* made =
        variables_.own(std::make_unique<Computed>(compile(set.value, set.place)));
    known_.erase(name);
    return made;
}

/// Variables of the request line and its headers.
const Variable* Scope::make_from_request(const std::string& name)
{
    const auto from = [this](const Variable* source, Derived::Function function) {
        return source == nullptr
            ? nullptr
            : variables_.own(std::make_unique<Derived>(source, std::move(function)));
    };
    const auto from_line = [&](std::string_view RequestLine::*part) {
        return from(variables_.logged("request"), [part](std::string_view line, std::string&) {
            const auto parts = parse_request_line(line);
            return parts ? (*parts).*part : std::string_view();
        });
    };
    if (name == "request_method") {
        return from_line(&RequestLine::method);
    }
    if (name == "request_uri") {
        return from_line(&RequestLine::uri);
    }
    if (name == "server_protocol") {
        return from_line(&RequestLine::protocol);
    }
    if (name == "uri" || name == "document_uri") {
        return variables_.path();
    }
    const auto from_uri = [&](Derived::Function function) {
        const Variable* uri = variables_.logged("request_uri");
        return from(uri != nullptr ? uri : from_line(&RequestLine::uri), std::move(function));
    };
    if (name == "args" || name == "query_string") {
        return from_uri([](std::string_view uri, std::string&) { return arguments_of(uri); });
    }
    if (name == "is_args") {
        return from_uri([](std::string_view uri, std::string&) -> std::string_view {
            return arguments_of(uri).empty() ? "" : "?";
        });
    }
    if (name.starts_with("arg_")) {
        const auto value = [wanted = name.substr(4)](std::string_view arguments, std::string&) {
            return argument(arguments, wanted);
        };
        const Variable* arguments = variables_.logged("args");
        if (arguments != nullptr) {
            return from(arguments, value);
        }
        return from_uri([value](std::string_view uri, std::string& own) {
            return value(arguments_of(uri), own);
        });
    }
    if (name.starts_with("cookie_")) {
        return from(
            variables_.logged("http_cookie"),
            [wanted = name.substr(7)](std::string_view header, std::string&) {
                return cookie(header, wanted);
            });
    }
    return name == "host" ? from(variables_.logged("http_host"), host_of) : nullptr;
}

const Variable* Scope::make_from_address(const std::string& name)
{
    const Variable* address = variables_.logged("remote_addr");
    if (address == nullptr) {
        return nullptr;
    }
    if (name == "binary_remote_addr") {
        return variables_.own(std::make_unique<Derived>(
            address, [](std::string_view text, std::string& own) -> std::string_view {
                return parse_address(text, own) ? own : text;
            }));
    }
    const unsigned prefix = variables_.definitions().ipv6_prefix;
    return variables_.own(
        std::make_unique<Derived>(address, [prefix](std::string_view text, std::string& own) {
            return client_of(text, prefix, own);
        }));
}

/// Null: it cannot be computed.
const Variable* Scope::make(const std::string& name, const Place& place)
{
    const bool path = name == "uri" || name == "document_uri";
    if (path && variables_.path() != nullptr) {
        return variables_.path();
    }
    if (const Variable* logged = variables_.logged(name)) {
        return logged;
    }
    if (const auto set = sets_.find(name); set != sets_.end()) {
        return make_set(name, set->second);
    }
    if (const auto map = variables_.definitions().maps.find(name);
        map != variables_.definitions().maps.end()) {
        return variables_.own(make_map(*this, *map->second));
    }
    if (const auto geo = variables_.definitions().geos.find(name);
        geo != variables_.definitions().geos.end()) {
        return variables_.own(make_geo(*this, *geo->second));
    }
    if (const auto capture = captures_.find(name); capture != captures_.end()) {
        const Capture it = capture->second;
        return variables_.own(
            std::make_unique<Derived>(it.subject, [it](std::string_view subject, std::string&) {
                std::vector<std::string_view> found;
                return it.regex->matches(subject, found) ? found[it.number] : std::string_view();
            }));
    }
    if (name == "server_name" && !server_name_.empty()) {
        return variables_.own(std::make_unique<Constant>(server_name_));
    }
    if (name == "binary_remote_addr" || name == "ratelimit_client") {
        return make_from_address(name);
    }
    if (name.size() == 1 && name[0] >= '1' && name[0] <= '9') {
        fail_at(place, "the capture \"$" + name + "\" cannot be followed; a named one can,");
    }
    return make_from_request(name);
}

}  // namespace ratelimit::rehearse

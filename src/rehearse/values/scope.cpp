#include "rehearse/conf/address.h"
#include "rehearse/values/request_facts.h"
#include "rehearse/values/request_line.h"
#include "rehearse/values/variables.h"

#include <algorithm>

namespace ratelimit::rehearse {

bool RequestRegex::match(std::string_view subject, Values& values) const
{
    std::vector<std::string_view> found;
    if (!matches(subject, found)) {
        return false;
    }
    std::vector<std::string> captures(found.begin(), found.end());
    for (const Named& one : needed_) {
        one.variable->assign(values, captures[one.number]);
    }
    values.rewritten().captures = std::move(captures);
    return true;
}

void Scope::declare_captures(const std::string& pattern, const Place& place)
{
    const Regex regex(pattern, false, place);
    for (const auto& [name, number] : regex.names()) {
        declare(name);
    }
}

const Assigned* Scope::needed(std::string_view dollar_name) const
{
    const auto found =
        assigned_.find(dollar_name.substr(std::min<std::size_t>(1, dollar_name.size())));
    return found != assigned_.end() && found->second.needed ? &found->second : nullptr;
}

std::size_t Scope::needed_count() const
{
    return static_cast<std::size_t>(std::count_if(
        assigned_.begin(), assigned_.end(), [](const auto& one) { return one.second.needed; }));
}

void Scope::bind(RequestRegex& regex) const
{
    regex.needed_.clear();
    for (const auto& [name, number] : regex.names()) {
        if (const Assigned* variable = needed("$" + name)) {
            regex.needed_.push_back({ variable, number });
        }
    }
}

Expression Scope::compile(std::string_view text, const Place& place, const Regex* regex)
{
    std::vector<Expression::Part> parts;
    const auto literal = [&parts]() -> std::string& {
        if (parts.empty() || parts.back().literal.empty()) {
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
        const auto capture = regex == nullptr ? std::nullopt : regex->capture_named(name);
        parts.push_back({ {}, capture ? nullptr : find(name, place), capture });
    }
    return Expression(std::move(parts));
}

const Variable* Scope::find(std::string_view name, const Place& place)
{
    const auto known = known_.find(name);
    if (known != known_.end() && known->second != nullptr) {
        return known->second;
    }
    const std::string own_name(name);
    if (name.starts_with(network_variable_prefix) && !parse_network_variable(name)) {
        fail_at(place, "invalid \"$" + own_name + "\", expected $ratelimit_net_A_B");
    }
    if (known != known_.end()) {
        fail_at(place, "the variable \"$" + own_name + "\" depends on itself");
    }
    const auto added = known_.emplace(own_name, nullptr).first;
    try {
        added->second = make(own_name);
        if (added->second == nullptr) {
            fail_at(
                place,
                "the variable \"$" + own_name + "\" is not in " + variables_.log_title()
                    + ", and cannot be computed from what is there,");
        }
    } catch (const InputError&) {
        known_.erase(added);
        throw;
    }
    return added->second;
}

/// $uri, $args and their parts, which `rewrite` changes. Null: the log does not have them.
const Variable* Scope::make_from_uri(const std::string& name)
{
    const auto rewritten = [this](std::string Values::Rewritten::*part) {
        return variables_.computed(
            [part](Values& values, std::string&) -> std::string_view {
                return values.rewritten().*part;
            },
            true);
    };
    if (name == "uri" || name == "document_uri") {
        return facts_.path == nullptr ? nullptr : rewritten(&Values::Rewritten::path);
    }
    if (facts_.args == nullptr) {
        return nullptr;
    }
    if (const auto found = assigned_.find("args"); found != assigned_.end()) {
        found->second.needed = true;
    }
    const Variable* args = rewritten(&Values::Rewritten::args);
    if (name == "args" || name == "query_string") {
        return args;
    }
    if (name == "is_args") {
        return variables_.derived(
            args, [](std::string_view text, std::string&) { return text.empty() ? "" : "?"; },
            true);
    }
    return variables_.derived(
        args,
        [wanted = name.substr(4)](std::string_view text, std::string&) {
            return argument(text, wanted);
        },
        true);
}

/// Variables of the request line and its headers.
const Variable* Scope::make_from_request(const std::string& name)
{
    if (name == "request_method") {
        return facts_.method;
    }
    if (name == "request_uri") {
        return variables_.derived(facts_.request_uri, [](std::string_view uri, std::string&) {
            return origin_form(uri);
        });
    }
    if (name == "server_protocol") {
        return variables_.of_line(&RequestLine::protocol);
    }
    if (name.starts_with("cookie_")) {
        return variables_.derived(
            variables_.logged("http_cookie"),
            [wanted = name.substr(7)](std::string_view header, std::string&) {
                return cookie(header, wanted);
            });
    }
    if (name != "host" || facts_.host == nullptr) {
        return nullptr;
    }
    return variables_.computed([host = facts_.host](Values& values, std::string&) {
        const auto sent = host->value(values);
        return sent.empty() ? values.rewritten().server_name : sent;
    });
}

const Variable* Scope::make_from_address(const std::string& name)
{
    if (name == "binary_remote_addr") {
        return variables_.derived(
            facts_.address, [](std::string_view text, std::string& own) -> std::string_view {
                return parse_address(text, own) ? own : text;
            });
    }
    const bool is_text = name.ends_with("_text");
    const auto network = parse_network_variable(name);
    const NetworkBits bits =
        network.value_or(NetworkBits{ .ipv6 = variables_.definitions().ipv6_prefix });
    return variables_.derived(
        facts_.address, [bits, is_text](std::string_view text, std::string& own) {
            const std::string_view bytes = network_of(text, bits, own);
            return is_text ? network_text(bytes, bits, own) : bytes;
        });
}

/// Null: it cannot be computed.
const Variable* Scope::make(const std::string& name)
{
    const bool of_uri = name == "uri" || name == "document_uri" || name == "args"
        || name == "query_string" || name == "is_args" || name.starts_with("arg_");
    if (const Variable* part = of_uri ? make_from_uri(name) : nullptr) {
        return part;
    }
    if (const Variable* logged = variables_.logged(name)) {
        return logged;
    }
    if (const auto found = assigned_.find(name); found != assigned_.end()) {
        found->second.needed = true;
        return &found->second;
    }
    if (const Directive* block = variables_.definitions().block(name)) {
        const auto make_one = block->name == "map" ? make_map
            : block->name == "geo"                 ? make_geo
                                                   : make_split;
        return variables_.computed(make_one(*this, *block));
    }
    if (name == "server_name") {
        return variables_.computed(
            [](Values& values, std::string&) { return values.rewritten().server_name; });
    }
    if (name == "binary_remote_addr" || name == "ratelimit_client"
        || name == "ratelimit_client_text" || name.starts_with(network_variable_prefix)) {
        return make_from_address(name);
    }
    if (name.size() == 1 && name[0] >= '1' && name[0] <= '9') {
        needs_captures_ = true;
        const auto number = static_cast<std::size_t>(name[0] - '0');
        return variables_.computed(
            [number](Values& values, std::string&) -> std::string_view {
                const auto& captures = values.rewritten().captures;
                return number < captures.size() ? captures[number] : std::string_view();
            },
            true);
    }
    return make_from_request(name);
}

}  // namespace ratelimit::rehearse

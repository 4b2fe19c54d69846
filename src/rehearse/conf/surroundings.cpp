#include "rehearse/conf/surroundings.h"

#include "limit/rate_text.h"

#include <algorithm>
#include <limits>

namespace ratelimit::rehearse {

namespace {

AccessRule rule_of(const Directive& directive)
{
    AccessRule rule;
    rule.allow = directive.name == "allow";
    directive.expect_args(1, 1);
    const std::string& text = directive.args[0];
    if (text == "all") {
        return rule;
    }
    if (text == "unix:") {
        rule.unix_socket = true;
        return rule;
    }
    const auto network = parse_network(text);
    if (!network) {
        fail_at(directive.place, "invalid parameter \"" + text + "\"");
    }
    rule.network = *network;
    return rule;
}

bool fits(const AccessRule& rule, const std::string& address)
{
    const auto& [bytes, prefix] = rule.network;
    if (bytes.empty()) {
        return !rule.unix_socket || address.empty();
    }
    if (bytes.size() != address.size()) {
        return false;
    }
    std::string cut = address;
    cut_address(cut, prefix);
    return cut == bytes;
}

/// `error_page 404 410 =200 /missing;`
void add_error_pages(const Directive& directive, std::vector<ErrorPage>& out)
{
    directive.expect_args(2);
    auto codes = directive.args;
    const std::string target = codes.back();
    codes.pop_back();
    const bool changes = codes.back().starts_with('=');
    std::optional<std::int64_t> response;
    if (changes) {
        response = parse_number(std::string_view(codes.back()).substr(1), 200, 599);
        codes.pop_back();
    }
    for (const std::string& code : codes) {
        const auto number = parse_number(code, 300, 599);
        if (!number) {
            fail_at(directive.place, "invalid value \"" + code + "\"");
        }
        const bool of_nginx = *number >= 494 && *number <= 497;  // they are logged as 400
        const std::int64_t kept = changes ? 0 : of_nginx ? 400 : *number;
        out.push_back({ static_cast<int>(*number), changes,
                        static_cast<int>(response.value_or(kept)), target, &directive });
    }
}

bool is_on(const Directive& directive)
{
    return directive.args.size() == 1 && directive.args[0] == "on";
}

void read_number(const Directive& directive, int& out)
{
    if (directive.args.size() == 1) {
        out = static_cast<int>(parse_number(directive.args[0], 400, 599).value_or(out));
    }
}

/// "8m", "512k", "1g" or "1000".
std::int64_t parse_size(const Directive& directive)
{
    std::string_view text = directive.args[0];
    unsigned shift = 0;
    if (!text.empty()) {
        const char unit = static_cast<char>(text.back() | 0x20);
        shift = unit == 'k' ? 10 : unit == 'm' ? 20 : unit == 'g' ? 30 : 0;
        text.remove_suffix(shift > 0 ? 1 : 0);
    }
    const auto number = parse_number(text, 0, std::numeric_limits<std::int64_t>::max() >> shift);
    if (!number) {
        fail_at(directive.place, "invalid value \"" + directive.args[0] + "\"");
    }
    return *number << shift;
}

/// Directives that have one value.
void read_value(const Directive& one, Surroundings& out)
{
    const bool off = one.args.size() == 1 && one.args[0] == "off";
    const std::string& name = one.name;
    if (name == "auth_basic") {
        out.auth_basic = off ? nullptr : &one;
    } else if (name == "auth_request" || name == "auth_jwt") {
        out.auth_request = off ? nullptr : &one;
    } else if (name == "satisfy" && one.args.size() == 1) {
        out.any = one.args[0] == "any";
    } else if (name == "ratelimit_phase" && one.args.size() == 1) {
        out.preaccess = one.args[0] == "preaccess";
    } else if (name == "ratelimit_fail_mode" && one.args.size() == 1) {
        out.closed = one.args[0] == "closed";
    } else if (name == "ratelimit_dry_run" && one.args.size() == 1) {
        out.dry_run = is_on(one);
    } else if (name == "internal") {
        out.internal = true;
    } else if (name.ends_with("_intercept_errors")) {
        out.intercepts = is_on(one);
    } else if (name.ends_with("_cache") && one.args.size() == 1) {
        out.caches = !off;
    } else if (name == "autoindex") {
        out.autoindex = is_on(one);
    } else if (name == "recursive_error_pages") {
        out.recursive_errors = is_on(one);
    } else if (name == "client_max_body_size" && one.args.size() == 1) {
        out.most_body = parse_size(one);
    } else if (name == "limit_req_dry_run") {
        out.limit_req_dry_run = is_on(one);
    } else if (name == "limit_conn") {
        out.limit_conn = &one;
    } else if (name == "limit_conn_dry_run") {
        out.limit_conn_dry_run = is_on(one);
    } else if (name == "ratelimit_status") {
        read_number(one, out.ratelimit_status);
    } else if (name == "limit_req_status") {
        read_number(one, out.limit_req_status);
    } else if (name == "limit_conn_status") {
        read_number(one, out.limit_conn_status);
    }
}

}  // namespace

std::optional<bool> allows(const AccessRules& rules, std::string_view text)
{
    std::string address;
    parse_client(text, address);  // empty: of a Unix socket
    for (const AccessRule& rule : rules) {
        if (fits(rule, address)) {
            return rule.allow;
        }
    }
    return std::nullopt;
}

Surroundings Surroundings::inner(const std::vector<const Directive*>& level) const
{
    Surroundings out = *this;
    auto own_rules = std::make_shared<AccessRules>();
    auto pages = std::make_shared<std::vector<ErrorPage>>();
    std::vector<std::string> own_index;
    for (const Directive* one : level) {
        if (one->name == "allow" || one->name == "deny") {
            own_rules->push_back(rule_of(*one));
        } else if (one->name == "error_page") {
            add_error_pages(*one, *pages);
        } else if (one->name == "index") {
            out.index = own_index.empty() ? one : out.index;
            own_index.insert(own_index.end(), one->args.begin(), one->args.end());
        } else {
            read_value(*one, out);
        }
    }
    if (!own_rules->empty()) {
        out.rules = std::move(own_rules);
    }
    if (!pages->empty()) {
        out.error_pages = std::move(pages);
    }
    if (!own_index.empty()) {
        out.index_files = std::move(own_index);
    }
    return out;
}

bool LimitExcept::applies_to(std::string_view method) const noexcept
{
    return std::none_of(methods.begin(), methods.end(), [method](const std::string& one) {
        return method == one || (one == "GET" && method == "HEAD");
    });
}

}  // namespace ratelimit::rehearse

#include "limit/variable_text.h"

#include "limit/network_bits.h"

#include <algorithm>
#include <array>
#include <span>

namespace ratelimit {

namespace {

/// Of nginx 1.31, of Angie 1.13, and of this module.
constexpr auto late_names = std::to_array<std::string_view>({
    "body_bytes_sent",
    "brotli_ratio",
    "bytes_sent",
    "gzip_ratio",
    "proxy_host",
    "proxy_port",
    "ratelimit_limit",
    "ratelimit_remaining",
    "ratelimit_reset",
    "ratelimit_retry_after",
    "ratelimit_source",
    "ratelimit_status",
    "ratelimit_time",
    "ratelimit_zone",
    "request_completion",
    "request_length",
    "request_time",
    "status",
    "uid_set",
    "upstream_addr",
    "upstream_bytes_received",
    "upstream_bytes_sent",
    "upstream_cache_age",
    "upstream_cache_etag",
    "upstream_cache_key",
    "upstream_cache_last_modified",
    "upstream_cache_status",
    "upstream_connect_time",
    "upstream_first_byte_time",
    "upstream_header_time",
    "upstream_last_server_name",
    "upstream_queue_time",
    "upstream_response_length",
    "upstream_response_time",
    "upstream_session_time",
    "upstream_status",
    "upstream_sticky_status",
});

/// Of variables whose name goes on with that of a header, a trailer or a cookie.
constexpr auto late_prefixes = std::to_array<std::string_view>(
    { "sent_http_", "sent_trailer_", "upstream_cookie_", "upstream_http_", "upstream_trailer_" });

/// The same, of the request.
constexpr auto early_prefixes = std::to_array<std::string_view>({ "arg_", "cookie_", "http_" });

/// New with each request or connection: no two requests of a client share such a key.
constexpr auto unshared_names =
    std::to_array<std::string_view>({ "connection", "msec", "proxy_protocol_port",
                                      "realip_remote_port", "remote_port", "request_id" });

constexpr auto key_names = std::to_array<std::string_view>(
    { "binary_remote_addr", "ratelimit_client", "remote_addr", "remote_user", "request_uri" });

/// As nginx compares names of variables: letters of both cases are alike.
bool is_same(std::string_view left, std::string_view right) noexcept
{
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
    return std::ranges::equal(left, right, {}, lower, lower);
}

bool is_among(std::string_view name, std::span<const std::string_view> names) noexcept
{
    return std::ranges::any_of(names, [name](auto each) { return is_same(name, each); });
}

bool has_prefix_of(std::string_view name, std::span<const std::string_view> prefixes) noexcept
{
    return std::ranges::any_of(prefixes, [name](auto prefix) {
        return name.size() > prefix.size() && is_same(name.substr(0, prefix.size()), prefix);
    });
}

constexpr bool is_letter_or_digit(char c) noexcept
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// A variable in a text.
struct Found {
    std::string_view name;
    std::string_view after;  // the text behind it
    bool braces = false;
};

/// The first variable of the text, as nginx reads it; an empty name: there is none.
Found first_variable(std::string_view text) noexcept
{
    const auto dollar = text.find('$');
    if (dollar == text.npos) {
        return {};
    }
    text.remove_prefix(dollar + 1);
    Found out;
    out.braces = text.starts_with('{');
    text.remove_prefix(out.braces ? 1 : 0);
    std::size_t length = 0;
    while (length < text.size() && (is_letter_or_digit(text[length]) || text[length] == '_')) {
        ++length;
    }
    out.name = text.substr(0, length);
    out.after = text.substr(length);
    return out;
}

/// Whether the name of a header, a cookie or an argument ends before a "-", which nginx's names do
/// not have.
bool ends_at_dash(const Found& variable) noexcept
{
    return !variable.braces && variable.after.size() > 1 && variable.after[0] == '-'
        && is_letter_or_digit(variable.after[1])
        && (has_prefix_of(variable.name, early_prefixes)
            || has_prefix_of(variable.name, late_prefixes));
}

}  // namespace

bool known_late(std::string_view name) noexcept
{
    return is_among(name, late_names) || has_prefix_of(name, late_prefixes);
}

std::string_view expected_variables(std::string_view text, VariableUse use) noexcept
{
    for (Found one = first_variable(text); !one.name.empty(); one = first_variable(one.after)) {
        if (ends_at_dash(one)) {
            return "a name without \"-\", such as $http_x_api_key for the header X-Api-Key, or "
                   "braces, such as ${http_x}-api, if text follows the variable";
        }
        if (use != VariableUse::charge && known_late(one.name)) {
            return use == VariableUse::cost ? late_cost : late_value;
        }
        if (use == VariableUse::key && is_among(one.name, unshared_names)) {
            return "variables that requests of a client share, since a client has a new key with "
                   "each request or connection";
        }
    }
    return {};
}

std::vector<std::string_view> variables_in(std::string_view text)
{
    std::vector<std::string_view> names;
    for (Found one = first_variable(text); !one.name.empty(); one = first_variable(one.after)) {
        names.push_back(one.name);
    }
    return names;
}

bool has_variable_named(std::string_view text, std::string_view name) noexcept
{
    Found one = first_variable(text);
    while (!one.name.empty() && !is_same(one.name, name)) {
        one = first_variable(one.after);
    }
    return !one.name.empty();
}

bool names_variable(std::string_view text) noexcept
{
    return is_among(text, key_names) || has_prefix_of(text, early_prefixes)
        || parse_network_variable(text).has_value();
}

}  // namespace ratelimit

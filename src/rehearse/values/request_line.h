#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::rehearse {

/// The parts of "GET /path?x=1 HTTP/1.1".
struct RequestLine {
    std::string_view method;
    std::string_view uri;       // with its arguments
    std::string_view protocol;  // empty for HTTP/0.9
};

/// Empty: nginx answers such a request line by itself, so that it reaches no limit: what is
/// malformed, TRACE, CONNECT, and HTTP/0.9 with another method than GET.
std::optional<RequestLine> parse_request_line(std::string_view line) noexcept;

/// The path as nginx matches it with locations: decoded, with single slashes and no dot segments.
/// Uses `own` if it differs from the text. `merge`: `merge_slashes on`. Empty: nginx answers 400.
std::optional<std::string_view> normalized_path(
    std::string_view uri, std::string& own, bool merge = true);

/// A URI without its scheme and host, "/" if nothing else is there: $request_uri.
std::string_view origin_form(std::string_view uri) noexcept;

/// The host of an absolute URI, with its port; empty: it is none.
std::string_view absolute_host(std::string_view uri) noexcept;

/// What follows the first question mark, without a fragment.
std::string_view arguments_of(std::string_view uri) noexcept;

/// The value of `name`, whatever its case, as it is in the request: $arg_name.
std::string_view argument(std::string_view arguments, std::string_view name) noexcept;

/// The value of a cookie of a Cookie header: $cookie_name.
std::string_view cookie(std::string_view header, std::string_view name) noexcept;

/// $host of a Host header: lower case, without the port. Uses `own`.
std::string_view host_of(std::string_view header, std::string& own);

/// Whether they differ in nothing but the case of ASCII letters.
bool same_caseless(std::string_view left, std::string_view right) noexcept;

std::string lower(std::string_view text);

}  // namespace ratelimit::rehearse

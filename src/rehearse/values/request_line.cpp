#include "rehearse/values/request_line.h"

#include "limit/percent_text.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

char lower(char letter) noexcept
{
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter;
}

/// "HTTP/1.1", and spaces.
bool is_protocol(std::string_view text) noexcept
{
    if (!text.starts_with("HTTP/")) {
        return false;
    }
    text.remove_prefix(5);
    text = text.substr(0, text.find_last_not_of(' ') + 1);
    const auto dot = text.find('.');
    const auto is_number = [](std::string_view part) {
        return !part.empty() && part.size() <= 3
            && part.find_first_not_of("0123456789") == std::string_view::npos;
    };
    return dot != std::string_view::npos && is_number(text.substr(0, dot))
        && is_number(text.substr(dot + 1));
}

/// Resolves `.` and `..`, and with `merge` merges slashes. False: above the root.
bool resolve_dots(std::string_view path, bool merge, std::string& out)
{
    out.assign(1, '/');
    std::size_t at = 1;
    while (at <= path.size()) {
        const auto end = std::min(path.find('/', at), path.size());
        const auto segment = path.substr(at, end - at);
        const bool last = end == path.size();
        at = end + 1;
        if (segment == "..") {
            if (out.size() == 1) {
                return false;
            }
            out.pop_back();
            out.erase(out.rfind('/') + 1);
        } else if (segment.empty()) {
            if (!merge && !last) {
                out += '/';
            }
        } else if (segment != ".") {
            out += segment;
            if (!last) {
                out += '/';
            }
        }
    }
    return true;
}

}  // namespace

std::string lower(std::string_view text)
{
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(), [](char letter) { return lower(letter); });
    return out;
}

bool same_caseless(std::string_view left, std::string_view right) noexcept
{
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](char a, char b) {
        return lower(a) == lower(b);
    });
}

std::optional<RequestLine> parse_request_line(std::string_view line) noexcept
{
    const auto first = line.find(' ');
    if (first == std::string_view::npos || first == 0) {
        return std::nullopt;
    }
    RequestLine parts;
    parts.method = line.substr(0, first);
    for (const char letter : parts.method) {
        if ((letter < 'A' || letter > 'Z') && letter != '_' && letter != '-') {
            return std::nullopt;
        }
    }
    const auto without_spaces = [](std::string_view text) {
        return text.substr(std::min(text.find_first_not_of(' '), text.size()));
    };
    line = without_spaces(line.substr(first));
    parts.uri = line.substr(0, line.find(' '));
    parts.protocol = without_spaces(line.substr(parts.uri.size()));
    if (parts.protocol.empty() ? parts.method != "GET" : !is_protocol(parts.protocol)) {
        return std::nullopt;
    }
    if (parts.method == "TRACE" || parts.method == "CONNECT") {
        return std::nullopt;
    }
    if (!parts.uri.starts_with('/') && parts.uri.find("://") == std::string_view::npos) {
        return std::nullopt;
    }
    return parts;
}

std::optional<std::string_view> normalized_path(std::string_view uri, std::string& own, bool merge)
{
    std::string_view path = origin_form(uri);
    path = path.substr(0, path.find_first_of("?#"));
    if (path.empty()) {
        return "/";
    }
    if (path.front() != '/') {
        return std::nullopt;
    }
    bool plain = true;
    for (std::size_t i = 0; i < path.size(); ++i) {
        const bool after_slash = i > 0 && path[i - 1] == '/';
        if (path[i] == '%' || (after_slash && (path[i] == '/' || path[i] == '.'))) {
            plain = false;
            break;
        }
    }
    if (plain) {
        return path;
    }
    const auto decoded = percent_decoded(path);
    if (!decoded || decoded->find('\0') != decoded->npos || !resolve_dots(*decoded, merge, own)) {
        return std::nullopt;
    }
    return own;
}

std::string_view origin_form(std::string_view uri) noexcept
{
    const auto scheme = uri.find("://");
    if (uri.starts_with('/') || scheme == std::string_view::npos) {
        return uri;
    }
    const auto path = uri.find_first_of("/?", scheme + 3);
    return path == std::string_view::npos ? "/" : uri.substr(path);
}

std::string_view absolute_host(std::string_view uri) noexcept
{
    const auto scheme = uri.find("://");
    if (uri.starts_with('/') || scheme == std::string_view::npos) {
        return {};
    }
    uri.remove_prefix(scheme + 3);
    return uri.substr(0, uri.find_first_of("/?#"));
}

std::string_view arguments_of(std::string_view uri) noexcept
{
    uri = uri.substr(0, uri.find('#'));
    const auto mark = uri.find('?');
    return mark == std::string_view::npos ? std::string_view() : uri.substr(mark + 1);
}

std::string_view argument(std::string_view arguments, std::string_view name) noexcept
{
    while (!arguments.empty()) {
        const auto end = std::min(arguments.find('&'), arguments.size());
        const auto one = arguments.substr(0, end);
        if (one.size() > name.size() && one[name.size()] == '='
            && same_caseless(one.substr(0, name.size()), name)) {
            return one.substr(name.size() + 1);
        }
        arguments.remove_prefix(std::min(end + 1, arguments.size()));
    }
    return {};
}

std::string_view cookie(std::string_view header, std::string_view name) noexcept
{
    while (!header.empty()) {
        auto one = header.substr(0, header.find(';'));
        one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
        const auto equals = one.find('=');
        if (equals != std::string_view::npos) {
            auto found = one.substr(0, equals);
            found = found.substr(0, found.find_last_not_of(' ') + 1);
            if (same_caseless(found, name)) {
                auto value = one.substr(equals + 1);
                value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
                return value;
            }
        }
        header.remove_prefix(std::min(header.find_first_of(";,"), header.size() - 1) + 1);
    }
    return {};
}

std::string_view host_of(std::string_view header, std::string& own)
{
    const auto bracket = header.rfind(']');
    const auto colon = header.find(':', bracket == std::string_view::npos ? 0 : bracket);
    own = lower(header.substr(0, colon));
    if (own.ends_with('.')) {
        own.pop_back();
    }
    return own;
}

}  // namespace ratelimit::rehearse

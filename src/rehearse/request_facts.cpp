#include "rehearse/request_facts.h"

#include "limit/rate_text.h"
#include "rehearse/request_line.h"

#include <algorithm>
#include <array>

namespace ratelimit::rehearse {

namespace {

/// Whether a path looks like that of a file that no program makes.
bool looks_static(std::string_view path) noexcept
{
    const auto name = path.substr(path.rfind('/') + 1);
    const auto dot = name.rfind('.');
    if (dot == std::string_view::npos || dot == 0 || dot + 1 == name.size()) {
        return false;
    }
    const auto extension = name.substr(dot + 1);
    constexpr std::array<std::string_view, 9> programs = { "php", "phtml", "cgi", "pl", "py",
                                                           "asp", "aspx",  "jsp", "do" };
    return std::none_of(programs.begin(), programs.end(), [extension](std::string_view one) {
        return same_caseless(one, extension);
    });
}

}  // namespace

RequestFacts::RequestFacts(Variables& variables)
    : path(variables.path()),
      args(variables.args()),
      address(variables.logged("remote_addr")),
      status(variables.logged("status")),
      method(variables.method())
{
    for (const char* name : { "upstream_status", "upstream_addr", "upstream_response_time" }) {
        upstream = upstream == nullptr ? variables.logged(name) : upstream;
    }
    for (const char* name : { "uri", "document_uri" }) {
        if (final_path == nullptr && variables.is_logged(name)) {
            final_path = variables.logged(name);
        }
    }
    final_path = final_path == path ? nullptr : final_path;
    if (variables.is_logged("http_host") && variables.is_logged("request")) {
        host_header = variables.logged("http_host");
        line = variables.logged("request");
    }
}

int RequestFacts::status_of(Values& values) const
{
    const auto number =
        status == nullptr ? std::nullopt : parse_number(status->value(values), 100, 999);
    return static_cast<int>(number.value_or(0));
}

bool RequestFacts::is_method(Values& values, const LimitExcept& limit) const
{
    return method != nullptr && limit.applies_to(method->value(values));
}

bool RequestFacts::file_found(Values& values) const
{
    const std::string& current = values.rewritten().path;
    if (final_path != nullptr && final_path->value(values) != current) {
        return false;
    }
    if (upstream != nullptr) {
        return upstream->value(values).empty()
            && (status == nullptr || is_success(status_of(values)));
    }
    const int code = status_of(values);
    return (code == 0 || is_success(code)) && looks_static(current);
}

bool RequestFacts::lacks_host(Values& values) const
{
    if (host_header == nullptr || !host_header->value(values).empty()) {
        return false;
    }
    const auto parts = parse_request_line(line->value(values));
    return parts && parts->protocol.starts_with("HTTP/1.")
        && !parts->protocol.starts_with("HTTP/1.0");
}

}  // namespace ratelimit::rehearse

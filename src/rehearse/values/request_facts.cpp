#include "rehearse/values/request_facts.h"

#include "limit/rate_text.h"
#include "rehearse/values/request_line.h"

#include <algorithm>
#include <array>

namespace ratelimit::rehearse {

namespace {

/// In a variable, between those that internal redirects led to.
constexpr std::string_view next_upstream = " : ";

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

const Variable* logged_or_of_line(
    Variables& variables, std::string_view name, std::string_view RequestLine::*part)
{
    const Variable* found = variables.logged(name);
    return found == nullptr ? variables.of_line(part) : found;
}

/// From the request as the client sent it, since $uri at the end of a request may be another.
const Variable* path_of(Variables& variables, const Variable* uri)
{
    const auto normalized = [merge = variables.definitions().merge_slashes](
                                std::string_view text, std::string& out) -> std::string_view {
        return text.empty() ? text : normalized_path(text, out, merge).value_or("");
    };
    return uri == nullptr ? variables.first_logged({ "uri", "document_uri" })
                          : variables.derived(uri, normalized);
}

const Variable* args_of(Variables& variables, const Variable* uri)
{
    return uri == nullptr ? variables.first_logged({ "args", "query_string" })
                          : variables.derived(uri, [](std::string_view text, std::string&) {
                                return arguments_of(text);
                            });
}

/// $host, or that of an absolute URI or of the Host header.
const Variable* host_in(Variables& variables)
{
    const Variable* host = variables.logged("host");
    if (host != nullptr || !variables.is_logged("http_host")) {
        return host;
    }
    return variables.computed(
        [header = variables.logged("http_host"),
         uri = variables.of_line(&RequestLine::uri)](Values& values, std::string& own) {
            const std::string_view absolute = absolute_host(value_of(uri, values));
            return host_of(absolute.empty() ? header->value(values) : absolute, own);
        });
}

}  // namespace

RequestFacts::RequestFacts(Variables& variables)
    : request_uri(logged_or_of_line(variables, "request_uri", &RequestLine::uri)),
      path(path_of(variables, request_uri)),
      args(args_of(variables, request_uri)),
      method(logged_or_of_line(variables, "request_method", &RequestLine::method)),
      host(host_in(variables)),
      address(variables.logged("remote_addr")),
      agent(variables.logged("http_user_agent")),
      status(variables.logged("status")),
      scheme(variables.logged("scheme")),
      body_length(variables.first_logged({ "content_length", "http_content_length" })),
      upstream_status(variables.logged("upstream_status")),
      upstream(
          variables.first_logged({ "upstream_status", "upstream_addr", "upstream_response_time" })),
      final_path(variables.first_logged({ "uri", "document_uri" }))
{
    final_path = final_path == path ? nullptr : final_path;
}

int RequestFacts::status_of(Values& values) const
{
    if (status_request_ != values.request()) {
        status_ = static_cast<int>(parse_number(value_of(status, values), 100, 999).value_or(0));
        status_request_ = values.request();
    }
    return status_;
}

bool RequestFacts::has_file(Values& values, const Directive* asker, std::string_view path)
{
    const bool likely = path == values.rewritten().path && looks_static(path);
    return !path.ends_with('/') && values.in_doubt(asker, path, likely);
}

bool RequestFacts::has_folder(Values& values, const Directive* asker, std::string_view path)
{
    if (path.ends_with('/')) {
        path.remove_suffix(1);
    }
    return path.empty() || values.in_doubt(asker, std::string(path) + "/", false);
}

bool RequestFacts::exists(Values& values, FileKind kind, const Directive& asker)
{
    const std::string& current = values.rewritten().path;
    return (kind != FileKind::folder && has_file(values, &asker, current))
        || (kind != FileKind::file && has_folder(values, &asker, current));
}

int RequestFacts::upstream_answer(Values& values, int number) const
{
    if (upstream_status == nullptr) {
        return status_of(values);
    }
    // "502, 200 : 404": the second server of a group, then another location.
    std::string_view text = upstream_status->value(values);
    for (; number > 0; --number) {
        const auto end = text.find(next_upstream);
        text.remove_prefix(end == text.npos ? text.size() : end + next_upstream.size());
    }
    text = text.substr(0, text.find(next_upstream));
    const auto comma = text.rfind(' ');
    text.remove_prefix(comma == text.npos ? 0 : comma + 1);
    return static_cast<int>(parse_number(text, 100, 999).value_or(status_of(values)));
}

int RequestFacts::asked_upstreams(Values& values) const
{
    std::string_view text = value_of(upstream, values);
    int count = text.empty() ? 0 : 1;
    for (auto end = text.find(next_upstream); end != text.npos; end = text.find(next_upstream)) {
        text.remove_prefix(end + next_upstream.size());
        ++count;
    }
    return count;
}

bool RequestFacts::body_is_longer(Values& values, std::int64_t most) const
{
    if (most == 0) {
        return false;
    }
    if (body_length != nullptr) {
        constexpr std::int64_t longest = std::int64_t{ 1 } << 62U;
        return parse_number(body_length->value(values), 0, longest).value_or(0) > most;
    }
    constexpr int too_large = 413;
    return status_of(values) == too_large && !asked_upstream(values);
}

}  // namespace ratelimit::rehearse

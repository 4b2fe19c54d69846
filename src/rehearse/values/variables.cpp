#include "rehearse/values/variables.h"

#include "rehearse/values/request_line.h"

namespace ratelimit::rehearse {

const Variable* Variables::logged(std::string_view name)
{
    const auto known = logged_.find(name);
    if (known != logged_.end()) {
        return known->second;
    }
    const Variable* variable = nullptr;
    if (const auto place = format_.index_of(name)) {
        const std::size_t index = format_.want(*place);
        variable = computed([index](Values& values, std::string& own) -> std::string_view {
            const std::string_view text = values.record().value(index);
            if (text == "-") {
                return {};
            }
            if (values.escape() == Escape::none || text.find('\\') == std::string_view::npos) {
                return text;
            }
            unescape(text, values.escape(), own);
            return own;
        });
    }
    logged_.emplace(name, variable);
    return variable;
}

const Variable* Variables::first_logged(std::initializer_list<const char*> names)
{
    const Variable* found = nullptr;
    for (const char* name : names) {
        found = found == nullptr ? logged(name) : found;
    }
    return found;
}

const Variable* Variables::of_line(std::string_view RequestLine::*part)
{
    return derived(logged("request"), [part](std::string_view line, std::string&) {
        const auto parts = parse_request_line(line);
        return parts ? (*parts).*part : std::string_view();
    });
}

const Variable* Variables::request_uri()
{
    if (request_uri_ == nullptr) {
        const Variable* found = logged("request_uri");
        request_uri_ = found == nullptr ? of_line(&RequestLine::uri) : found;
    }
    return request_uri_;
}

/// From the request as the client sent it, since $uri at the end of a request may be another.
const Variable* Variables::path()
{
    if (path_ == nullptr) {
        const auto normalized = [merge = definitions_.merge_slashes](
                                    std::string_view text, std::string& out) -> std::string_view {
            return text.empty() ? text : normalized_path(text, out, merge).value_or("");
        };
        const Variable* uri = request_uri();
        path_ = uri == nullptr ? first_logged({ "uri", "document_uri" }) : derived(uri, normalized);
    }
    return path_;
}

const Variable* Variables::method()
{
    if (method_ == nullptr) {
        const Variable* found = logged("request_method");
        method_ = found == nullptr ? of_line(&RequestLine::method) : found;
    }
    return method_;
}

/// Of an absolute URI, or of the Host header.
const Variable* Variables::host()
{
    if (host_ == nullptr) {
        host_ = logged("host");
    }
    if (host_ == nullptr && is_logged("http_host")) {
        host_ = computed([header = logged("http_host"),
                          uri = of_line(&RequestLine::uri)](Values& values, std::string& own) {
            const std::string_view host =
                uri == nullptr ? std::string_view() : absolute_host(uri->value(values));
            return host_of(host.empty() ? header->value(values) : host, own);
        });
    }
    return host_;
}

const Variable* Variables::args()
{
    if (args_ == nullptr) {
        const Variable* uri = request_uri();
        args_ = uri == nullptr
            ? first_logged({ "args", "query_string" })
            : derived(uri, [](std::string_view text, std::string&) { return arguments_of(text); });
    }
    return args_;
}

}  // namespace ratelimit::rehearse

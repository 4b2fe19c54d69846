#include "rehearse/values/variables.h"

#include "rehearse/values/derived_variable.h"
#include "rehearse/values/request_line.h"

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

/// $host: of an absolute URI, or of the Host header.
class Host : public Variable {
public:
    Host(const Variable* header, const Variable* line) : header_(header), line_(line) {}

private:
    std::string_view compute(Values& values, std::string& own) const override
    {
        if (line_ != nullptr) {
            const auto parts = parse_request_line(line_->value(values));
            const std::string_view host = parts ? absolute_host(parts->uri) : std::string_view();
            if (!host.empty()) {
                return host_of(host, own);
            }
        }
        return host_of(header_->value(values), own);
    }

    const Variable* header_;
    const Variable* line_;  // null: not in the log
};

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
        variable = own(std::make_unique<Logged>(wanted_->size()));
        wanted_->push_back(static_cast<std::size_t>(found - names.begin()));
    }
    logged_.emplace(name, variable);
    return variable;
}

/// $request_uri; null: the log does not have it.
const Variable* Variables::request_uri()
{
    if (request_uri_ == nullptr) {
        request_uri_ = logged("request_uri");
    }
    if (const Variable* line = request_uri_ == nullptr ? logged("request") : nullptr) {
        request_uri_ = own(std::make_unique<Derived>(line, [](std::string_view text, std::string&) {
            const auto parts = parse_request_line(text);
            return parts ? parts->uri : std::string_view();
        }));
    }
    return request_uri_;
}

/// From the request as the client sent it, since $uri at the end of a request may be another.
const Variable* Variables::path()
{
    if (path_ != nullptr) {
        return path_;
    }
    if (const Variable* uri = request_uri()) {
        path_ = own(std::make_unique<Derived>(
            uri, [merge = definitions_.merge_slashes](std::string_view text, std::string& out) {
                return text.empty()
                    ? text
                    : normalized_path(text, out, merge).value_or(std::string_view());
            }));
    } else if (const Variable* logged_path = logged("uri")) {
        path_ = logged_path;
    } else {
        path_ = logged("document_uri");
    }
    return path_;
}

const Variable* Variables::method()
{
    if (method_ == nullptr) {
        method_ = logged("request_method");
    }
    if (const Variable* line = method_ == nullptr ? logged("request") : nullptr) {
        method_ = own(std::make_unique<Derived>(line, [](std::string_view text, std::string&) {
            const auto parts = parse_request_line(text);
            return parts ? parts->method : std::string_view();
        }));
    }
    return method_;
}

const Variable* Variables::host()
{
    if (host_ == nullptr) {
        host_ = logged("host");
    }
    if (host_ == nullptr && is_logged("http_host")) {
        host_ = own(std::make_unique<Host>(logged("http_host"), logged("request")));
    }
    return host_;
}

const Variable* Variables::args()
{
    if (args_ != nullptr) {
        return args_;
    }
    if (const Variable* uri = request_uri()) {
        args_ = own(std::make_unique<Derived>(
            uri, [](std::string_view text, std::string&) { return arguments_of(text); }));
    } else if (const Variable* logged_args = logged("args")) {
        args_ = logged_args;
    } else {
        args_ = logged("query_string");
    }
    return args_;
}

}  // namespace ratelimit::rehearse

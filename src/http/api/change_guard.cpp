#include "http/api/change_guard.h"

#include "nginx/text.h"

#include <optional>
#include <string_view>

namespace ratelimit::http {

namespace {

using nginx::view;

/// A request's header, by its name in lower case.
std::optional<std::string_view> header(ngx_http_request_t* r, std::string_view name) noexcept
{
    for (auto* part = &r->headers_in.headers.part; part != nullptr; part = part->next) {
        const auto* all = static_cast<const ngx_table_elt_t*>(part->elts);
        for (ngx_uint_t i = 0; i < part->nelts; ++i) {
            if (std::string_view(reinterpret_cast<const char*>(all[i].lowcase_key), all[i].key.len)
                == name) {
                return view(all[i].value);
            }
        }
    }
    return std::nullopt;
}

}  // namespace

bool is_of_other_origin(ngx_http_request_t* r) noexcept
{
    if (const auto site = header(r, "sec-fetch-site")) {
        return *site != "same-origin" && *site != "none";
    }
    const auto origin = header(r, "origin");
    if (!origin) {
        return false;  // no browser, or not a request of a page
    }
    const auto scheme = origin->find("://");
    const bool named = scheme != std::string_view::npos && r->headers_in.host != nullptr;
    return !named || origin->substr(scheme + 3) != view(r->headers_in.host->value);
}

}  // namespace ratelimit::http

#include "http/api/response.h"

#include "limit/json_text.h"
#include "nginx/text.h"

#include <algorithm>

namespace ratelimit::http {

using nginx::borrowed;

ngx_int_t send_response(
    ngx_http_request_t* r, ngx_uint_t status, std::string_view type, std::string_view body,
    std::span<const ApiHeader> headers)
{
    static constexpr ApiHeader always[] = {
        { "Cache-Control", "no-store" },
        { "X-Content-Type-Options", "nosniff" },
    };
    for (const auto all : { std::span<const ApiHeader>(always), headers }) {
        for (const ApiHeader& header : all) {
            if (nginx::add_header(
                    r->headers_out.headers, borrowed(header.name), borrowed(header.value))
                == nullptr) {
                return NGX_HTTP_INTERNAL_SERVER_ERROR;
            }
        }
    }
    r->disable_not_modified = 1;  // nginx would answer If-Match with 412 after a change was made
    r->headers_out.status = status;
    r->headers_out.content_length_n = static_cast<off_t>(body.size());
    r->headers_out.content_type = borrowed(type);
    r->headers_out.content_type_len = std::min(type.find(';'), type.size());  // as gzip compares it

    ngx_int_t rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }
    const ngx_str_t copy = nginx::copied(r->pool, body);
    auto* buffer = static_cast<ngx_buf_t*>(ngx_calloc_buf(r->pool));
    if (copy.data == nullptr || buffer == nullptr) {
        return NGX_ERROR;
    }
    buffer->pos = buffer->start = copy.data;
    buffer->last = buffer->end = copy.data + copy.len;
    buffer->memory = 1;
    buffer->last_buf = r == r->main ? 1 : 0;
    buffer->last_in_chain = 1;
    ngx_chain_t out{ buffer, nullptr };
    return ngx_http_output_filter(r, &out);
}

ngx_int_t send_error(
    ngx_http_request_t* r, ngx_uint_t status, std::string_view what,
    std::span<const ApiHeader> headers)
{
    JsonText json;
    json.begin_object().text("error", what);
    return send_response(r, status, json_type, json.finish(), headers);
}

}  // namespace ratelimit::http

#include "http/usage_filter.h"

#include "http/request_state.h"
#include "limit/usage_scanner.h"
#include "nginx/guarded.h"
#include "nginx/pool.h"
#include "nginx/text.h"

#include <optional>

namespace ratelimit::http {

struct UsageReader {
    UsageScanner scanner;
    bool ended = false;  // all of the response was read
};

namespace {

ngx_http_output_header_filter_pt after_usage_headers;
ngx_http_output_body_filter_pt after_usage_body;

bool is_type(const ngx_http_headers_out_t& headers, std::string_view type) noexcept
{
    return headers.content_type_len == type.size()
        && ngx_strncasecmp(headers.content_type.data, nginx::borrowed(type).data, type.size()) == 0;
}

/// Empty: a response of another type.
std::optional<UsageScanner::Format> format_of(const ngx_http_headers_out_t& headers) noexcept
{
    if (is_type(headers, "application/json")) {
        return UsageScanner::Format::json;
    }
    return is_type(headers, "text/event-stream") ? std::optional(UsageScanner::Format::event_stream)
                                                 : std::nullopt;
}

/// nginx's range filter sets 206 after our header filter, so that the body filter asks again.
bool is_part(const ngx_http_request_t* r) noexcept
{
    return r->headers_out.status == NGX_HTTP_PARTIAL_CONTENT;
}

/// "identity" has no place in a response, but some servers write it.
bool is_identity(const ngx_str_t& encoding) noexcept
{
    const std::string_view none = "identity";
    return encoding.len == 0
        || (encoding.len == none.size()
            && ngx_strncasecmp(encoding.data, nginx::borrowed(none).data, none.size()) == 0);
}

/// Once in a worker and configuration.
void log_encoded(ngx_http_request_t* r, const ngx_str_t& encoding) noexcept
{
    static const volatile ngx_cycle_t* logged_in = nullptr;
    if (logged_in == ngx_cycle) {
        return;
    }
    logged_in = ngx_cycle;
    char line[64];
    const ngx_str_t shown =
        nginx::borrowed(nginx::escaped_for_log(nginx::view(encoding), line, sizeof(line)));
    ngx_log_error(
        NGX_LOG_WARN, r->connection->log, 0,
        "ratelimit: ratelimit_usage cannot read responses in Content-Encoding \"%V\", which "
        "\"proxy_set_header Accept-Encoding identity;\" avoids",
        &shown);
}

void begin(ngx_http_request_t* r, std::string_view path)
{
    RequestState* state = RequestState::find(r);
    const auto format = format_of(r->headers_out);
    if (state == nullptr || state->usage != nullptr || r->header_only || is_part(r) || !format) {
        return;
    }
    const ngx_table_elt_t* encoding = r->headers_out.content_encoding;
    if (encoding != nullptr && !is_identity(encoding->value)) {
        log_encoded(r, encoding->value);
        return;
    }
    state->usage = nginx::make<UsageReader>(r->pool, UsageReader{ UsageScanner(path, *format) });
    r->filter_need_in_memory = 1;
}

ngx_int_t header_filter(ngx_http_request_t* r) noexcept
{
    const UsageConf* usage = r == r->main ? location_conf(r).usage : nullptr;
    if (usage != nullptr) {
        nginx::guarded(r->connection->log, [r, usage] { begin(r, usage->path); });
    }
    return after_usage_headers(r);
}

void read(UsageReader& usage, const ngx_chain_t* in) noexcept
{
    for (; in != nullptr; in = in->next) {
        const ngx_buf_t* buffer = in->buf;
        if (ngx_buf_in_memory(buffer)) {
            usage.scanner.read({ reinterpret_cast<const char*>(buffer->pos),
                                 static_cast<std::size_t>(buffer->last - buffer->pos) });
        }
        usage.ended = usage.ended || buffer->last_buf != 0;
    }
}

ngx_int_t body_filter(ngx_http_request_t* r, ngx_chain_t* in) noexcept
{
    if (r == r->main && location_conf(r).usage != nullptr) {
        const RequestState* state = RequestState::find(r);
        if (state != nullptr && state->usage != nullptr && !is_part(r)) {
            read(*state->usage, in);
        }
    }
    return after_usage_body(r, in);
}

}  // namespace

void install_usage_filter() noexcept
{
    after_usage_headers = ngx_http_top_header_filter;
    ngx_http_top_header_filter = header_filter;
    after_usage_body = ngx_http_top_body_filter;
    ngx_http_top_body_filter = body_filter;
}

ngx_int_t get_usage(ngx_http_request_t* r, ngx_http_variable_value_t* value, uintptr_t) noexcept
{
    const RequestState* state = RequestState::find(r->main);
    const UsageReader* usage = state == nullptr ? nullptr : state->usage;
    const auto number = usage != nullptr && usage->ended ? usage->scanner.value() : std::nullopt;
    auto* text = number ? static_cast<u_char*>(ngx_pnalloc(r->pool, NGX_INT64_LEN)) : nullptr;
    if (text == nullptr) {
        value->not_found = 1;
        return NGX_OK;
    }
    const auto length = static_cast<std::size_t>(ngx_sprintf(text, "%L", *number) - text);
    nginx::set_value(*value, nginx::view({ length, text }));
    return NGX_OK;
}

}  // namespace ratelimit::http

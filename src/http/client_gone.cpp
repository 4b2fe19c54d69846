#include "http/client_gone.h"

namespace ratelimit::http {

namespace {

ngx_http_request_body_filter_pt after_body_read;

bool has_body(const ngx_http_request_t* r) noexcept
{
    return r->headers_in.content_length_n >= 0 || r->headers_in.chunked;
}

/// Whether nginx received all of the body before the client left.
bool body_complete(const ngx_http_request_t* r) noexcept
{
    const ngx_http_v2_stream_t* stream = r->stream;
    if (!stream->in_closed) {
        return false;
    }
    const off_t length = r->headers_in.content_length_n;
    if (length < 0) {
        return !stream->out_closed;  // a reset sets both
    }
    const ngx_buf_t* preread = stream->preread;
    return length == (preread == nullptr ? 0 : preread->last - preread->pos);
}

/// Whether the content handler would find that the client has left when it begins to read the body.
bool gone_before_body(const ngx_http_request_t* r) noexcept
{
    return r->stream != nullptr && r->connection->error && has_body(r) && r->request_body == nullptr
        && !r->discard_body && !r->stream->skip_data && r->content_handler != nullptr;
}

/// nginx calls the handler of a complete body after this filter.
ngx_int_t filter(ngx_http_request_t* r, ngx_chain_t* in) noexcept
{
    if (r == r->main && r->request_body->rest == 0) {
        if (RequestState* state = RequestState::find(r); state != nullptr) {
            show_client_gone(*state);
        }
    }
    return after_body_read(r, in);
}

}  // namespace

ngx_int_t pass_without_client(ngx_http_request_t* r, RequestState& state) noexcept
{
    if (gone_before_body(r)) {
        if (!body_complete(r)) {
            return NGX_HTTP_CLIENT_CLOSED_REQUEST;
        }
        r->connection->error = 0;
        state.hides_client_gone = true;
    }
    return NGX_DECLINED;
}

void show_client_gone(RequestState& state) noexcept
{
    if (state.hides_client_gone) {
        state.hides_client_gone = false;
        state.request->connection->error = 1;
    }
}

void install_body_filter() noexcept
{
    after_body_read = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = filter;
}

}  // namespace ratelimit::http

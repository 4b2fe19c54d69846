#include "http/problem_details.h"

#include "nginx/text.h"

#include <algorithm>
#include <charconv>
#include <span>

namespace ratelimit::http {

namespace {

using nginx::borrowed;

/// A problem type of draft-ietf-httpapi-ratelimit-headers, section 10.2.
struct ProblemType {
    std::string_view name;
    std::string_view title;
};

constexpr ProblemType quota_exceeded = { "quota-exceeded", "Quota Exceeded" };
constexpr ProblemType reduced_capacity = { "temporary-reduced-capacity",
                                           "Temporary Reduced Capacity" };
constexpr ProblemType abnormal_usage = { "abnormal-usage-detected", "Abnormal Usage Detected" };

constexpr std::string_view before_type =
    R"({"type":"https://iana.org/assignments/http-problem-types#)";
constexpr std::string_view before_title = R"(","title":")";
constexpr std::string_view before_status = R"(","status":)";
constexpr std::string_view before_policies = R"(,"violated-policies":[)";
constexpr std::string_view after_policies = "]}\n";

const ProblemType& type_of(const Decision& decision) noexcept
{
    if (decision.result() == Result::failed_closed) {
        return reduced_capacity;
    }
    const bool block = decision.decided_by().state.blocked.count() > 0;
    return block ? abnormal_usage : quota_exceeded;
}

/// Whether the limit refuses the request, or by fail mode cannot let it in.
bool is_violated(const Decision& decision, const AppliedLimit& limit) noexcept
{
    if (limit.decided) {
        return !limit.shadow && !limit.state.granted;
    }
    return decision.result() == Result::failed_closed && decision.undecided(limit);
}

std::size_t body_room(const Decision& decision, const ProblemType& type) noexcept
{
    std::size_t room = before_type.size() + type.name.size() + before_title.size()
        + type.title.size() + before_status.size() + NGX_INT_T_LEN + before_policies.size()
        + after_policies.size();
    for (const AppliedLimit& limit : decision.limits()) {
        room += limit.zone->name.size() + std::string_view(R"("",)").size();
    }
    return room;
}

/// The names of zones need no escaping. Empty data: out of memory.
ngx_str_t make_body(ngx_http_request_t* r, const Decision& decision, ngx_int_t status) noexcept
{
    const ProblemType& type = type_of(decision);
    auto* body = static_cast<char*>(ngx_pnalloc(r->pool, body_room(decision, type)));
    if (body == nullptr) {
        return { 0, nullptr };
    }
    char* end = body;
    const auto put = [&end](std::string_view text) { end += text.copy(end, text.size()); };
    put(before_type);
    put(type.name);
    put(before_title);
    put(type.title);
    put(before_status);
    end = std::to_chars(end, end + NGX_INT_T_LEN, status).ptr;
    put(before_policies);
    bool first = true;
    for (const AppliedLimit& limit : decision.limits()) {
        if (is_violated(decision, limit)) {
            put(first ? R"(")" : R"(,")");
            put(limit.zone->name);
            put(R"(")");
            first = false;
        }
    }
    put(after_policies);
    return borrowed({ body, static_cast<std::size_t>(end - body) });
}

/// Whether nginx closes the connection instead of an answer of this status.
bool closes(ngx_int_t status) noexcept
{
    return status == NGX_HTTP_CLOSE || status == NGX_HTTP_REQUEST_TIME_OUT
        || status == NGX_HTTP_CLIENT_CLOSED_REQUEST;
}

/// Whether nginx would answer this status by an error_page (ngx_http_special_response_handler).
bool has_error_page(ngx_http_request_t* r, ngx_int_t status) noexcept
{
    const auto* core = static_cast<const ngx_http_core_loc_conf_t*>(
        ngx_http_get_module_loc_conf(r, ngx_http_core_module));
    if (r->error_page != 0 || core->error_pages == nullptr || r->uri_changes == 0) {
        return false;
    }
    const std::span pages(
        static_cast<const ngx_http_err_page_t*>(core->error_pages->elts), core->error_pages->nelts);
    return std::any_of(pages.begin(), pages.end(), [status](const ngx_http_err_page_t& page) {
        return page.status == status;
    });
}

/// Headers of an earlier response may be left, such as of a backend's X-Accel-Redirect.
void clear_headers(ngx_http_request_t* r) noexcept
{
    ngx_http_clear_content_length(r);
    ngx_http_clear_accept_ranges(r);
    ngx_http_clear_last_modified(r);
    ngx_http_clear_etag(r);
}

/// As nginx sends a page of its own for an error.
ngx_int_t send(ngx_http_request_t* r, ngx_int_t status, const ngx_str_t& body) noexcept
{
    static constexpr std::string_view content_type = "application/problem+json";
    auto* buffer = static_cast<ngx_buf_t*>(ngx_calloc_buf(r->pool));
    if (body.data == nullptr || buffer == nullptr) {
        return NGX_ERROR;
    }
    r->err_status = static_cast<ngx_uint_t>(status);
    r->expect_tested = 1;  // no "100 Continue" for a body that is not read
    if (ngx_http_discard_request_body(r) != NGX_OK) {
        r->keepalive = 0;
    }
    clear_headers(r);
    r->headers_out.content_type = borrowed(content_type);
    r->headers_out.content_type_len = content_type.size();
    r->headers_out.content_type_lowcase = nullptr;
    r->headers_out.content_length_n = static_cast<off_t>(body.len);

    const ngx_int_t sent = ngx_http_send_header(r);
    if (sent == NGX_ERROR || sent > NGX_OK || r->header_only) {
        return sent;
    }
    buffer->pos = body.data;
    buffer->last = body.data + body.len;
    buffer->memory = 1;
    buffer->last_buf = 1;
    buffer->last_in_chain = 1;
    ngx_chain_t out{ buffer, nullptr };
    return ngx_http_output_filter(r, &out);
}

}  // namespace

ngx_int_t refuse(ngx_http_request_t* r, const RequestState& state, ngx_int_t status) noexcept
{
    if (state.conf.problem_details == 0 || closes(status) || has_error_page(r, status)) {
        return status;
    }
    ngx_http_finalize_request(r, send(r, status, make_body(r, state.decision, status)));
    return NGX_DONE;
}

}  // namespace ratelimit::http

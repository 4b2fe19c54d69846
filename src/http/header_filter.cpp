#include "http/header_filter.h"

#include "http/request_state.h"
#include "limit/rate_headers.h"
#include "nginx/guarded.h"
#include "nginx/text.h"

#include <vector>

namespace ratelimit::http {

namespace {

using nginx::borrowed;

ngx_http_output_header_filter_pt next_filter;

bool same_name(const ngx_table_elt_t& header, std::string_view name) noexcept
{
    return header.key.len == name.size()
        && ngx_strncasecmp(
               header.key.data, reinterpret_cast<u_char*>(const_cast<char*>(name.data())),
               name.size())
        == 0;
}

/// A backend may have sent a header of this name: one answer, ours, stays.
void drop(ngx_http_request_t* r, std::string_view name) noexcept
{
    for (auto* part = &r->headers_out.headers.part; part != nullptr; part = part->next) {
        auto* headers = static_cast<ngx_table_elt_t*>(part->elts);
        for (ngx_uint_t i = 0; i < part->nelts; ++i) {
            if (headers[i].hash != 0 && same_name(headers[i], name)) {
                headers[i].hash = 0;
            }
        }
    }
}

bool add(ngx_http_request_t* r, std::string_view name, ngx_str_t value) noexcept
{
    auto* header = value.data == nullptr
        ? nullptr
        : static_cast<ngx_table_elt_t*>(ngx_list_push(&r->headers_out.headers));
    if (header == nullptr) {
        return false;
    }
    ngx_memzero(header, sizeof(*header));
    header->hash = 1;
    header->key = borrowed(name);  // of static storage
    header->value = value;
    return true;
}

bool set(ngx_http_request_t* r, std::string_view name, std::int64_t value) noexcept
{
    auto* text = static_cast<u_char*>(ngx_pnalloc(r->pool, NGX_INT64_LEN));
    if (text == nullptr) {
        return false;
    }
    drop(r, name);
    const auto* end = ngx_sprintf(text, "%L", value);
    return add(r, name, { static_cast<std::size_t>(end - text), text });
}

bool set(ngx_http_request_t* r, std::string_view name, const std::string& value)
{
    drop(r, name);
    return add(r, name, nginx::copied(r->pool, value));
}

/// The three single-valued headers: the limit with the least left speaks.
bool set_three(
    ngx_http_request_t* r, const RequestState& state, std::string_view limit,
    std::string_view remaining, std::string_view reset) noexcept
{
    const DecidedLimit& speaking = state.speaking();
    return set(r, limit, speaking.policy.limit()) && set(r, remaining, speaking.state.remaining)
        && set(r, reset, whole_seconds(speaking.state.reset));
}

bool set_draft(ngx_http_request_t* r, const RequestState& state)
{
    std::vector<HeaderMember> members;
    members.reserve(state.decided.size());

    for (std::size_t i = 0; i < state.decided.size(); ++i) {
        const DecidedLimit& limit = state.decided[i];
        if (limit.shadow) {
            continue;
        }
        // A client that waits for `t` of a refusing limit must be let in then.
        const bool refusing = !limit.state.granted && limit.state.retry_after.has_value();
        members.push_back({ state.limits[i].zone->zone.name, limit.policy.limit(),
                            limit.policy.limit_window(), limit.state.remaining,
                            refusing ? *limit.state.retry_after : limit.state.reset });
    }
    return set(r, "RateLimit-Policy", policy_header(members))
        && set(r, "RateLimit", state_header(members));
}

bool set_headers(ngx_http_request_t* r, const RequestState& state)
{
    const ngx_uint_t sets = state.conf.headers;
    bool good = true;

    if (!state.speaking().shadow) {
        if ((sets & headers_x_ratelimit) != 0) {
            good = good
                && set_three(
                       r, state, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset");
        }
        if ((sets & headers_legacy) != 0) {
            good = good
                && set_three(r, state, "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset");
        }
        if ((sets & headers_draft) != 0) {
            good = good && set_draft(r, state);
        }
    }
    if (state.result == Result::rejected && state.outcome.retry_after) {
        good = good && set(r, "Retry-After", retry_after_seconds(*state.outcome.retry_after));
    }
    return good;
}

ngx_int_t filter(ngx_http_request_t* r) noexcept
{
    if (r == r->main) {
        const RequestState* state = RequestState::find(r);
        if (state != nullptr && state->has_outcome()) {
            const bool good =
                nginx::guarded(r->connection->log, false, [&] { return set_headers(r, *state); });
            if (!good) {
                return NGX_ERROR;
            }
        }
    }
    return next_filter(r);
}

}  // namespace

void install_header_filter() noexcept
{
    next_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = filter;
}

}  // namespace ratelimit::http

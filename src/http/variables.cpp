#include "http/variables.h"

#include "http/request_state.h"
#include "limit/rate_headers.h"
#include "nginx/text.h"

#include <array>

namespace ratelimit::http {

namespace {

using nginx::borrowed;

constexpr std::array<std::string_view, 8> result_names = {
    "",
    "PASSED",
    "DELAYED",
    "REJECTED",
    "DELAYED_DRY_RUN",
    "REJECTED_DRY_RUN",
    "FAILED_OPEN",
    "FAILED_CLOSED",
};

void set_text(ngx_http_variable_value_t* value, std::string_view text) noexcept
{
    const ngx_str_t str = borrowed(text);
    value->valid = 1;
    value->no_cacheable = 0;
    value->not_found = 0;
    value->len = static_cast<unsigned>(str.len) & 0x0fffffff;
    value->data = str.data;
}

template <class... Args>
ngx_int_t set_formatted(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const char* format, Args... args)
{
    constexpr std::size_t size = 2 * NGX_INT64_LEN;
    auto* text = static_cast<u_char*>(ngx_pnalloc(r->pool, size));
    if (text == nullptr) {
        return NGX_ERROR;
    }
    const u_char* end = ngx_snprintf(text, size, format, args...);
    set_text(value, { reinterpret_cast<char*>(text), static_cast<std::size_t>(end - text) });
    return NGX_OK;
}

/// The state of the main request; null: no decision was made.
const RequestState* decided_state(ngx_http_request_t* r) noexcept
{
    const RequestState* state = RequestState::find(r->main);
    return state != nullptr && state->decision.result() != Result::none ? state : nullptr;
}

using Getter = ngx_int_t (*)(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const RequestState& state);

ngx_int_t get_status(
    ngx_http_request_t*, ngx_http_variable_value_t* value, const RequestState& state)
{
    set_text(value, result_names[static_cast<std::size_t>(state.decision.result())]);
    return NGX_OK;
}

ngx_int_t get_time(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const RequestState& state)
{
    return set_formatted(r, value, "%M.%03M", state.waited / 1000, state.waited % 1000);
}

ngx_int_t get_source(
    ngx_http_request_t*, ngx_http_variable_value_t* value, const RequestState& state)
{
    const Source source = state.decision.decided_by().source;
    set_text(value, name_of(source));
    return NGX_OK;
}

ngx_int_t get_zone(ngx_http_request_t*, ngx_http_variable_value_t* value, const RequestState& state)
{
    set_text(value, state.decision.decided_by().zone->name);
    return NGX_OK;
}

ngx_int_t get_limit(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const RequestState& state)
{
    return set_formatted(r, value, "%L", state.decision.shown().policy.limit());
}

ngx_int_t get_remaining(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const RequestState& state)
{
    return set_formatted(r, value, "%L", state.decision.shown().state.remaining);
}

ngx_int_t get_reset(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const RequestState& state)
{
    const AppliedLimit& limit = state.decision.shown();
    return set_formatted(r, value, "%L", whole_seconds(shown_reset(limit.policy, limit.state)));
}

ngx_int_t get_retry_after(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const RequestState& state)
{
    const Outcome& outcome = state.decision.outcome();
    if (!outcome.refused || !outcome.retry_after) {
        value->not_found = 1;
        return NGX_OK;
    }
    return set_formatted(r, value, "%L", retry_after_seconds(*outcome.retry_after));
}

/// Calls `getter`. The variable is not found if no decision was made or, with `needs_outcome`, if
/// the decision has no outcome.
template <Getter getter, bool needs_outcome>
ngx_int_t get(ngx_http_request_t* r, ngx_http_variable_value_t* value, uintptr_t) noexcept
{
    const RequestState* state = decided_state(r);
    if (state == nullptr || (needs_outcome && !state->decision.has_outcome())) {
        value->not_found = 1;
        return NGX_OK;
    }
    return getter(r, value, *state);
}

/// An IPv6 address as a key: its first `prefix` bits, or four bytes if it is IPv4-mapped.
ngx_int_t set_ipv6(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const in6_addr& address,
    ngx_uint_t prefix) noexcept
{
    constexpr std::size_t length = sizeof(address.s6_addr);
    constexpr std::size_t ipv4_length = 4;
    auto* bytes = static_cast<u_char*>(ngx_pnalloc(r->pool, length));
    if (bytes == nullptr) {
        return NGX_ERROR;
    }
    ngx_memcpy(bytes, address.s6_addr, length);
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
        set_text(value, { reinterpret_cast<char*>(bytes) + length - ipv4_length, ipv4_length });
        return NGX_OK;
    }
    for (std::size_t i = 0; i < length; ++i) {
        const std::size_t kept = prefix > i * 8 ? std::min<std::size_t>(8, prefix - i * 8) : 0;
        bytes[i] &= static_cast<u_char>(0xff00U >> kept);
    }
    // Always 16 bytes, so that no truncated address equals an IPv4 address.
    set_text(value, { reinterpret_cast<char*>(bytes), length });
    return NGX_OK;
}

ngx_int_t get_client(ngx_http_request_t* r, ngx_http_variable_value_t* value, uintptr_t) noexcept
{
    const sockaddr* address = r->connection->sockaddr;
    if (address->sa_family == AF_INET6) {
        return set_ipv6(
            r, value, reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr,
            main_conf(r).ipv6_prefix);
    }
    if (address->sa_family == AF_INET) {
        const auto& ipv4 = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
        set_text(value, { reinterpret_cast<const char*>(&ipv4.s_addr), sizeof(ipv4.s_addr) });
        return NGX_OK;
    }
    set_text(value, nginx::view(r->connection->addr_text));
    return NGX_OK;
}

struct Variable {
    ngx_str_t name;
    ngx_http_get_variable_pt get;
};

const Variable variables[] = {
    { ngx_string("ratelimit_status"), get<get_status, false> },
    { ngx_string("ratelimit_zone"), get<get_zone, true> },
    { ngx_string("ratelimit_limit"), get<get_limit, true> },
    { ngx_string("ratelimit_remaining"), get<get_remaining, true> },
    { ngx_string("ratelimit_reset"), get<get_reset, true> },
    { ngx_string("ratelimit_retry_after"), get<get_retry_after, true> },
    { ngx_string("ratelimit_source"), get<get_source, true> },
    { ngx_string("ratelimit_time"), get<get_time, false> },
    { ngx_string("ratelimit_client"), get_client },
};

}  // namespace

ngx_int_t add_variables(ngx_conf_t* cf) noexcept
{
    for (const Variable& variable : variables) {
        ngx_str_t name = variable.name;
        ngx_http_variable_t* added = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
        if (added == nullptr) {
            return NGX_ERROR;
        }
        added->get_handler = variable.get;
    }
    return NGX_OK;
}

}  // namespace ratelimit::http

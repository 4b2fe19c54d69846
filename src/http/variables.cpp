#include "http/variables.h"

#include "http/request_state.h"
#include "http/shown_key.h"
#include "limit/network_bits.h"
#include "limit/rate_headers.h"
#include "nginx/text.h"

#include <array>
#include <bit>
#include <span>

namespace ratelimit::http {

namespace {

using nginx::set_value;

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
    set_value(*value, { reinterpret_cast<char*>(text), static_cast<std::size_t>(end - text) });
    return NGX_OK;
}

/// The state of the main request, or of a subrequest of its own; null: no decision was made.
const RequestState* decided_state(ngx_http_request_t* r) noexcept
{
    const RequestState* state = RequestState::find(is_limited(r) ? r : r->main);
    return state != nullptr && state->decision.result() != Result::none ? state : nullptr;
}

using Getter = ngx_int_t (*)(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const RequestState& state);

ngx_int_t get_status(
    ngx_http_request_t*, ngx_http_variable_value_t* value, const RequestState& state)
{
    set_value(*value, result_names[static_cast<std::size_t>(state.decision.result())]);
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
    set_value(*value, name_of(source));
    return NGX_OK;
}

ngx_int_t get_zone(ngx_http_request_t*, ngx_http_variable_value_t* value, const RequestState& state)
{
    set_value(*value, state.decision.decided_by().zone->name);
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
    const auto seconds = state.retry_after();
    if (!seconds) {
        value->not_found = 1;
        return NGX_OK;
    }
    return set_formatted(r, value, "%L", *seconds);
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

/// An address as a key, which is cut to the bits of its network.
ngx_int_t set_cut(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, std::span<const u_char> address,
    unsigned bits) noexcept
{
    auto* bytes = static_cast<u_char*>(ngx_pnalloc(r->pool, address.size()));
    if (bytes == nullptr) {
        return NGX_ERROR;
    }
    ngx_memcpy(bytes, address.data(), address.size());
    cut_address(bytes, address.size(), bits);
    // All bytes, so that no truncated IPv6 address equals an IPv4 address.
    set_value(*value, { reinterpret_cast<char*>(bytes), address.size() });
    return NGX_OK;
}

/// The client's network in binary form. An IPv4-mapped address is an IPv4 address.
ngx_int_t set_network(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, const NetworkBits& bits) noexcept
{
    const sockaddr* address = r->connection->sockaddr;
    if (address->sa_family == AF_INET6) {
        const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
        const std::span<const u_char> bytes(ipv6.s6_addr);
        return IN6_IS_ADDR_V4MAPPED(&ipv6) ? set_cut(r, value, bytes.last<4>(), bits.ipv4)
                                           : set_cut(r, value, bytes, bits.ipv6);
    }
    if (address->sa_family == AF_INET) {
        const in_addr& ipv4 = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
        const auto* bytes = reinterpret_cast<const u_char*>(&ipv4.s_addr);
        return set_cut(r, value, { bytes, sizeof(ipv4.s_addr) }, bits.ipv4);
    }
    set_value(*value, nginx::view(r->connection->addr_text));
    return NGX_OK;
}

ngx_int_t get_client(ngx_http_request_t* r, ngx_http_variable_value_t* value, uintptr_t) noexcept
{
    return set_network(r, value, { .ipv6 = static_cast<unsigned>(main_conf(r).ipv6_prefix) });
}

/// $ratelimit_client as people write it.
ngx_int_t get_client_text(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, uintptr_t) noexcept
{
    if (const ngx_int_t rc = get_client(r, value, 0); rc != NGX_OK) {
        return rc;
    }
    const std::string_view bytes(reinterpret_cast<const char*>(value->data), value->len);
    if (bytes.size() != sizeof(in_addr) && bytes.size() != sizeof(in6_addr)) {
        return NGX_OK;  // of a Unix socket: a text
    }
    constexpr std::size_t longest = NGX_SOCKADDR_STRLEN + 4;
    auto* text = static_cast<char*>(ngx_pnalloc(r->pool, longest));
    if (text == nullptr) {
        return NGX_ERROR;
    }
    const std::size_t bits =
        bytes.size() == sizeof(in_addr) ? 8 * sizeof(in_addr) : main_conf(r).ipv6_prefix;
    set_value(*value, write_network(bytes, bits, text, longest));
    return NGX_OK;
}

/// $ratelimit_net_A_B. nginx passes the variable's name.
ngx_int_t get_network(
    ngx_http_request_t* r, ngx_http_variable_value_t* value, uintptr_t data) noexcept
{
    const auto bits = parse_network_variable(nginx::view(*std::bit_cast<const ngx_str_t*>(data)));
    if (!bits) {  // not from the configuration, whose names check_variables has seen
        value->not_found = 1;
        return NGX_OK;
    }
    return set_network(r, value, *bits);
}

struct Variable {
    ngx_str_t name;
    ngx_http_get_variable_pt get;
    ngx_uint_t more_flags = 0;
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
    { ngx_string("ratelimit_client_text"), get_client_text },
    { ngx_string("ratelimit_net_"), get_network, NGX_HTTP_VAR_PREFIX },
};

}  // namespace

ngx_int_t add_variables(ngx_conf_t* cf) noexcept
{
    for (const Variable& variable : variables) {
        ngx_str_t name = variable.name;
        ngx_http_variable_t* added =
            ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE | variable.more_flags);
        if (added == nullptr) {
            return NGX_ERROR;
        }
        added->get_handler = variable.get;
    }
    return NGX_OK;
}

ngx_int_t check_variables(ngx_conf_t* cf) noexcept
{
    const auto* core = static_cast<const ngx_http_core_main_conf_t*>(
        ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module));
    const auto* indexed = static_cast<const ngx_http_variable_t*>(core->variables.elts);
    for (const ngx_http_variable_t& variable : std::span(indexed, core->variables.nelts)) {
        const std::string_view name = nginx::view(variable.name);
        if (name.starts_with(network_variable_prefix) && !parse_network_variable(name)) {
            ngx_str_t text = variable.name;
            ngx_conf_log_error(
                NGX_LOG_EMERG, cf, 0,
                "invalid \"$%V\", expected $ratelimit_net_A_B with 1 to 32 bits of an IPv4 address "
                "and 1 to 128 of an "
                "IPv6 address",
                &text);
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}

}  // namespace ratelimit::http

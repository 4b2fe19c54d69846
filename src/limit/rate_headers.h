#pragma once

#include "limit/policy.h"
#include "limit/verdict.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

namespace ratelimit {

/// What a limit counts: `qu` of the RateLimit-Policy header.
enum class QuotaUnit : std::uint8_t { requests, content_bytes, concurrent_requests };

/// One limit as the RateLimit headers of draft-ietf-httpapi-ratelimit-headers-11 show it.
struct HeaderMember {
    std::string_view zone;  // printable ASCII
    Policy policy;
    QuotaUnit unit = QuotaUnit::requests;
    std::optional<Verdict> state;  // empty: not decided; then only RateLimit-Policy names it
};

/// Whole seconds, rounded up, so that no promised time comes too early.
constexpr std::int64_t whole_seconds(microseconds time) noexcept
{
    return std::chrono::ceil<std::chrono::seconds>(time).count();
}

/// The reset that clients see. Of requests at one time it is one second while anything is held,
/// else 0.
constexpr microseconds shown_reset(const Policy& policy, const Verdict& state) noexcept
{
    if (!counts_at_one_time(policy.algorithm) || state.reset.count() == 0) {
        return std::min(state.reset, state.ends);
    }
    return std::chrono::seconds{ 1 };
}

/// The retry time that clients see. Empty: never.
constexpr std::optional<microseconds> shown_retry(const Verdict& state) noexcept
{
    return state.retry_after ? std::optional(std::min(*state.retry_after, state.ends))
                             : std::nullopt;
}

/// Retry-After: whole seconds, rounded up, at least 1.
constexpr std::int64_t retry_after_seconds(microseconds time) noexcept
{
    return std::max<std::int64_t>(1, whole_seconds(time));
}

/// Retry-After with up to `percent` more, so that clients that were refused together do not return
/// together. `random`: uniform from 0 to 2^31 - 1. If the share is less than a second, some clients
/// get one second more, the others nothing.
constexpr std::int64_t spread(
    std::int64_t seconds, std::uint32_t percent, std::uint32_t random) noexcept
{
    constexpr double end = 2147483648.0;
    const double choices = static_cast<double>(seconds) * percent / 100 + 1;
    return seconds + static_cast<std::int64_t>(random / end * choices);
}

/// `q` and `w` of the RateLimit-Policy header.
struct QuotaPolicy {
    std::int64_t quota = 0;
    std::int64_t window_s = 0;          // 0: there is none, as requests at one time have no window
    std::optional<std::int64_t> burst;  // a parameter of our own, where `quota` does not say it
};

/// The most that can remain, and the time in which that much becomes available. The draft has whole
/// seconds only. Where that time has a fraction, the rate as it is configured, with its burst.
QuotaPolicy quota_policy(const Policy& policy) noexcept;

/// `t` of the RateLimit header, the effective window: the least time, as far as the decision tells,
/// for which a client that spreads what remains evenly over it is not refused and can keep that
/// pace. So remaining / window is never above the rate. For a refusal, the retry time. If nothing
/// remains, a time after which something does.
microseconds effective_window(const Policy& policy, const Verdict& state) noexcept;

/// An upper bound of the length, in bytes, of each of the following values.
std::size_t header_room(std::span<const HeaderMember> members) noexcept;

/// The value of RateLimit-Policy, `"zone";q=100;w=60, ...`: a list of RFC 9651 with one member for
/// each limit. Written to `out`, which must have header_room.
std::string_view policy_header(std::span<const HeaderMember> members, char* out) noexcept;

/// The value of RateLimit, `"zone";r=50;t=30, ...`: of the limits that were decided. Otherwise as
/// policy_header.
std::string_view state_header(std::span<const HeaderMember> members, char* out) noexcept;

}  // namespace ratelimit

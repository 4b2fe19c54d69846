#pragma once

#include "limit/decision.h"
#include "limit/policy.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace ratelimit {

/// One limit as the RateLimit headers show it.
struct HeaderMember {
    std::string_view zone;  // printable ASCII
    std::int64_t limit = 0;
    microseconds window{ 0 };  // in which that much becomes available
    std::int64_t remaining = 0;
    microseconds reset{ 0 };  // in a refusal, the refusing limit's: its retry time
};

/// Whole seconds, rounded up, so that no promised time comes too early.
constexpr std::int64_t whole_seconds(microseconds time) noexcept
{
    return std::chrono::ceil<std::chrono::seconds>(time).count();
}

/// Retry-After: whole seconds, rounded up, at least 1.
constexpr std::int64_t retry_after_seconds(microseconds time) noexcept
{
    return std::max<std::int64_t>(1, whole_seconds(time));
}

/// How long one of the following can be.
std::size_t header_room(std::span<const HeaderMember> members) noexcept;

/// The value of RateLimit-Policy, `"zone";q=100;w=60, ...`: a list of RFC 9651 with one member for
/// each limit (draft-ietf-httpapi-ratelimit-headers). Written to `out`, which has header_room.
std::string_view policy_header(std::span<const HeaderMember> members, char* out) noexcept;

/// The value of RateLimit, `"zone";r=50;t=30, ...`.
std::string_view state_header(std::span<const HeaderMember> members, char* out) noexcept;

}  // namespace ratelimit

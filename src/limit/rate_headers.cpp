#include "limit/rate_headers.h"

#include "base/decimal.h"
#include "limit/refill_time.h"
#include "limit/wide.h"

#include <array>
#include <charconv>

namespace ratelimit {

namespace {

constexpr std::string_view comma = ", ";
constexpr std::string_view frame = R"("";q=;w=;ratelimit-burst=;qu="concurrent-requests")";

constexpr std::array<std::string_view, 3> unit_names = { "requests", "content-bytes",
                                                         "concurrent-requests" };

char* put(char* out, std::string_view text) noexcept
{
    return out + text.copy(out, text.size());
}

/// RFC 9651, section 4.1.6: a quoted string, its quotes and backslashes escaped.
char* put_string(char* out, std::string_view text) noexcept
{
    *out++ = '"';
    for (const char character : text) {
        if (character == '"' || character == '\\') {
            *out++ = '\\';
        }
        *out++ = character;
    }
    *out++ = '"';
    return out;
}

char* put_parameter(char* out, std::string_view name, std::int64_t value) noexcept
{
    *out++ = ';';
    out = put(out, name);
    *out++ = '=';
    return std::to_chars(out, out + most_digits, value).ptr;
}

/// Begins a member behind what has been written from `start` to `end`; returns the new end.
char* put_member(const char* start, char* end, std::string_view zone) noexcept
{
    return put_string(end == start ? end : put(end, comma), zone);
}

/// A bucket drains at the rate, whatever was taken of it.
microseconds bucket_window(const Policy& policy, const Verdict& state) noexcept
{
    if (state.remaining > 0) {
        return refill_time_ceil(state.remaining, policy.rate);
    }
    const auto first = state.reset - refill_time_floor(policy.limit() - 1, policy.rate);
    return std::max(first, microseconds{ 1 });
}

/// Units that were taken may stay until the reset, if all of them are new: until then a client has
/// only the rest. From then on the quota for each window.
microseconds sliding_window(const Policy& policy, const Verdict& state) noexcept
{
    microseconds until = state.reset;
    if (traits_of(policy.algorithm).weighted && state.remaining > 0) {
        // The counts of this window weigh less and less from its end on.
        until = std::min(until, policy.rate.window);
    }
    return std::max(until, refill_time_ceil(state.remaining, policy.rate));
}

/// When something remains again of a blocked key.
microseconds blocked_window(const Policy& policy, const Verdict& state) noexcept
{
    if (keeps_arrival_time(policy.algorithm)) {
        return std::max(
            state.blocked, state.reset - refill_time_floor(policy.limit() - 1, policy.rate));
    }
    return state.used_up ? state.reset : state.blocked;
}

/// effective_window, if the limit has no end.
microseconds endless_window(const Policy& policy, const Verdict& state) noexcept
{
    if (!state.granted && state.retry_after) {
        return *state.retry_after;
    }
    if (state.blocked.count() > 0) {
        return blocked_window(policy, state);
    }
    if (counts_at_one_time(policy.algorithm)) {
        return shown_reset(policy, state);
    }
    return keeps_arrival_time(policy.algorithm) ? bucket_window(policy, state)
                                                : sliding_window(policy, state);
}

}  // namespace

QuotaPolicy quota_policy(const Policy& policy) noexcept
{
    const std::int64_t limit = policy.limit();
    const Rate& rate = policy.rate;
    if (counts_at_one_time(policy.algorithm)) {
        return { limit, 0, std::nullopt };
    }
    constexpr std::int64_t second = std::chrono::microseconds{ std::chrono::seconds{ 1 } }.count();
    if (!keeps_arrival_time(policy.algorithm)) {
        return { limit, whole_seconds(rate.window), std::nullopt };
    }
    const Wide time = Wide{ limit } * rate.window.count();  // in 1/quota us
    const Wide unit = Wide{ rate.quota } * second;
    if (time % unit == 0) {
        return { limit, static_cast<std::int64_t>(time / unit), std::nullopt };
    }
    QuotaPolicy shown{ rate.quota, whole_seconds(rate.window), std::nullopt };
    if (policy.algorithm == Algorithm::token_bucket) {
        shown.burst = limit;
    } else if (limit > 1) {
        shown.burst = limit - 1;
    }
    return shown;
}

microseconds effective_window(const Policy& policy, const Verdict& state) noexcept
{
    return std::min(endless_window(policy, state), state.ends);
}

std::size_t header_room(std::span<const HeaderMember> members) noexcept
{
    std::size_t room = 0;
    for (const HeaderMember& member : members) {
        room += comma.size() + 2 * member.zone.size() + frame.size() + 3 * most_digits;
    }
    return room;
}

std::string_view policy_header(std::span<const HeaderMember> members, char* out) noexcept
{
    char* end = out;
    for (const HeaderMember& member : members) {
        const QuotaPolicy policy = quota_policy(member.policy);
        end = put_parameter(put_member(out, end, member.zone), "q", policy.quota);
        if (member.unit != QuotaUnit::requests) {
            end = put_string(put(end, ";qu="), unit_names[static_cast<std::size_t>(member.unit)]);
        }
        if (policy.window_s > 0) {
            end = put_parameter(end, "w", policy.window_s);
        }
        if (policy.burst) {
            end = put_parameter(end, "ratelimit-burst", *policy.burst);
        }
    }
    return { out, static_cast<std::size_t>(end - out) };
}

std::string_view state_header(std::span<const HeaderMember> members, char* out) noexcept
{
    char* end = out;
    for (const HeaderMember& member : members) {
        if (member.state) {
            end = put_member(out, end, member.zone);
            end = put_parameter(end, "r", member.state->remaining);
            // Requests at one time have no window, but a time to wait.
            if (!counts_at_one_time(member.policy.algorithm) || !member.state->granted) {
                end = put_parameter(
                    end, "t", whole_seconds(effective_window(member.policy, *member.state)));
            }
        }
    }
    return { out, static_cast<std::size_t>(end - out) };
}

}  // namespace ratelimit

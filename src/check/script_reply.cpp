#include "check/script_reply.h"

#include <array>

#include <hiredis/hiredis.h>

namespace ratelimit {

namespace {

constexpr std::size_t fields = 4;

/// `parts`: granted, remaining, reset, retry.
bool read_state(const redisReply* const* parts, LimitState& state) noexcept
{
    std::array<long long, fields> numbers{};
    for (std::size_t i = 0; i < fields; ++i) {
        if (parts[i]->type != REDIS_REPLY_INTEGER) {
            return false;
        }
        numbers[i] = parts[i]->integer;
    }
    const auto [granted, remaining, reset, retry] = numbers;
    if (granted < 0 || granted > 1 || remaining < 0 || reset < 0 || retry < -1) {
        return false;
    }
    state.granted = granted == 1;
    state.remaining = remaining;
    state.reset = microseconds{ reset };
    state.retry_after = std::nullopt;
    if (retry >= 0) {
        state.retry_after = microseconds{ retry };
    }
    return true;
}

}  // namespace

bool read_reply(const redisReply& reply, std::span<LimitState> states) noexcept
{
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != states.size() * fields) {
        return false;
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
        if (!read_state(reply.element + i * fields, states[i])) {
            return false;
        }
    }
    return true;
}

}  // namespace ratelimit

#include "check/script_reply.h"

#include <hiredis/hiredis.h>

namespace ratelimit {

namespace {

constexpr std::size_t fields = 4;
constexpr std::size_t field_size = 8;
constexpr std::size_t state_size = fields * field_size;

std::int64_t read_integer(const char* bytes) noexcept
{
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < field_size; ++i) {
        number = number << 8 | static_cast<unsigned char>(bytes[i]);
    }
    return static_cast<std::int64_t>(number);
}

bool read_state(const char* bytes, LimitState& state) noexcept
{
    const auto granted = read_integer(bytes);
    const auto remaining = read_integer(bytes + field_size);
    const auto reset = read_integer(bytes + 2 * field_size);
    const auto retry = read_integer(bytes + 3 * field_size);
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

bool read_reply(
    const redisReply& reply, std::span<LimitState> states, microseconds* server_time) noexcept
{
    const std::size_t times = server_time == nullptr ? 0 : field_size;
    if (reply.type != REDIS_REPLY_STRING || reply.len != states.size() * state_size + times) {
        return false;
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
        if (!read_state(reply.str + i * state_size, states[i])) {
            return false;
        }
    }
    if (server_time != nullptr) {
        *server_time = microseconds{ read_integer(reply.str + states.size() * state_size) };
    }
    return true;
}

}  // namespace ratelimit

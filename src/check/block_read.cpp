#include "check/block_read.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit {

BlockState block_state(std::string_view record, microseconds now) noexcept
{
    std::array<double, 4> times{};
    if (record.size() != sizeof(times)) {
        return {};
    }
    std::memcpy(times.data(), record.data(), sizeof(times));
    const auto [refused, begins, ends, spared] = times;
    const auto at = static_cast<double>(now.count());
    constexpr double exact = 9'007'199'254'740'992;  // 2^53
    const bool blocked = at < ends && refused < ends && ends < exact
        && (begins <= at || at < refused);  // before the refusal: the clock ran backwards
    return { microseconds{ blocked ? static_cast<std::int64_t>(std::floor(ends - at)) : 0 },
             at <= spared && spared < exact };
}

// One byte more than a record has, so that a longer value is told apart.
BlockRead::BlockRead(std::string_view block_key, microseconds now, Done done)
    : CommandCall(
        redis::plain_command({ "GETRANGE", block_key, "0", "32" }), std::string(block_key)),
      now_(now),
      done_(std::move(done))
{
    repeatable = true;
}

bool BlockRead::on_reply(const redisReply& reply) noexcept
{
    if (reply.type != REDIS_REPLY_STRING) {
        return false;
    }
    done_(block_state({ reply.str, reply.len }, now_));
    return true;
}

}  // namespace ratelimit

#include "fleet/sync_reply.h"

#include "redis/reply_text.h"

#include <algorithm>
#include <array>

#include <hiredis/hiredis.h>

namespace ratelimit::fleet {

namespace {

constexpr std::size_t head = 8;         // elements before the changes
constexpr std::size_t each_change = 3;  // elements of one
constexpr std::int64_t latest = std::int64_t{ 1 } << 52;

bool is_number(const redisReply& reply) noexcept
{
    return reply.type == REDIS_REPLY_INTEGER && reply.integer >= 0 && reply.integer <= latest;
}

}  // namespace

std::optional<SyncReply> SyncReply::parse(const redisReply& reply) noexcept
{
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements < head
        || (reply.elements - head) % each_change != 0) {
        return std::nullopt;
    }
    std::array<std::uint64_t, head> numbers{};
    for (std::size_t i = 0; i < head; ++i) {
        if (!is_number(*reply.element[i])) {
            return std::nullopt;
        }
        numbers[i] = static_cast<std::uint64_t>(reply.element[i]->integer);
    }
    SyncReply parsed(reply);
    parsed.now = microseconds{ numbers[0] };
    parsed.cursor = numbers[1];
    parsed.nodes = static_cast<std::uint32_t>(std::min<std::uint64_t>(numbers[2], UINT32_MAX));
    parsed.listed = microseconds{ numbers[3] };
    parsed.digest = { numbers[4], numbers[5] };
    parsed.more = numbers[6] != 0;
    parsed.from = numbers[7];
    // After a reply that does not lead on, the same call would be sent for ever.
    if (parsed.cursor == 0 || (parsed.more && parsed.cursor <= parsed.from)) {
        return std::nullopt;
    }
    return parsed;
}

std::size_t SyncReply::size() const noexcept
{
    return (reply_->elements - head) / each_change;
}

std::optional<SyncReply::Change> SyncReply::change(std::size_t index) const noexcept
{
    redisReply* const* parts = reply_->element + head + each_change * index;
    if (!is_number(*parts[0]) || parts[1]->type != REDIS_REPLY_STRING
        || parts[2]->type != REDIS_REPLY_STRING) {
        return std::nullopt;
    }
    return Change{ static_cast<std::uint64_t>(parts[0]->integer), redis::text_of(*parts[1]),
                   redis::text_of(*parts[2]) };
}

}  // namespace ratelimit::fleet

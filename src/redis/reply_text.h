#pragma once

#include <string_view>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

/// The text of a string, a status or an error; empty for any other reply.
inline std::string_view text_of(const redisReply& reply) noexcept
{
    const bool is_text = reply.type == REDIS_REPLY_STRING || reply.type == REDIS_REPLY_STATUS
        || reply.type == REDIS_REPLY_ERROR;
    return is_text ? std::string_view{ reply.str, reply.len } : std::string_view{};
}

/// Whether the reply to a command such as DEL says that there was nothing.
inline bool is_zero(const redisReply& reply) noexcept
{
    return reply.type == REDIS_REPLY_INTEGER && reply.integer == 0;
}

}  // namespace ratelimit::redis

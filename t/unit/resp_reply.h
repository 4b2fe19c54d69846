#pragma once

#include <memory>
#include <string_view>

#include <hiredis/hiredis.h>

namespace ratelimit {

/// The reply that hiredis reads from RESP.
inline std::unique_ptr<redisReply, void (*)(void*)> reply_of(std::string_view resp)
{
    redisReader* reader = redisReaderCreate();
    redisReaderFeed(reader, resp.data(), resp.size());
    void* reply = nullptr;
    redisReaderGetReply(reader, &reply);
    redisReaderFree(reader);
    return { static_cast<redisReply*>(reply), freeReplyObject };
}

}  // namespace ratelimit

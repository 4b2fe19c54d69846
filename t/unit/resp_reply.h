#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <hiredis/hiredis.h>

namespace ratelimit {

/// A text in RESP.
inline std::string bulk(const std::string& text)
{
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

/// A range of the slots of a cluster and their master, as in a reply to CLUSTER SLOTS.
inline std::string slots_at(
    std::size_t first, std::size_t last, int port, const std::string& host = "127.0.0.1")
{
    return "*3\r\n:" + std::to_string(first) + "\r\n:" + std::to_string(last) + "\r\n*3\r\n"
        + bulk(host) + ":" + std::to_string(port) + "\r\n" + bulk("id");
}

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

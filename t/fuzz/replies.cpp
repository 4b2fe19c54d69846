// Any reply of a server, through hiredis's reader: cluster maps, replies of scripts, and errors.

#include "fuzz.h"

#include "check/script_reply.h"
#include "redis/cluster_slots.h"
#include "redis/hash_slot.h"
#include "redis/reply_limits.h"

#include <algorithm>

#include <hiredis/hiredis.h>

using namespace ratelimit;

namespace {

void read(const redisReply& reply)
{
    const redis::Endpoint source = redis::announced_endpoint("10.0.0.1", 6379);
    if (const auto map = redis::read_cluster_slots(reply, source)) {
        must(!map->empty());
        for (const redis::SlotRange& range : *map) {
            must(range.first <= range.last && range.last < redis::slot_count);
        }
    }
    if (reply.type == REDIS_REPLY_ERROR) {
        redis::read_redirection({ reply.str, reply.len }, source);
    }
    LimitCheck counted;
    counted.policy = { Algorithm::fixed_window, { 10, std::chrono::seconds{ 60 } }, {}, {} };
    for (const std::size_t answers : { 1, 2, 7 }) {
        std::vector<KeyReply> several;
        if (!read_several_reply(reply, std::vector(answers, counted), 1, several)) {
            continue;
        }
        for (const KeyReply& answer : several) {
            must(answer.taken >= 0 && answer.reset.count() >= 0);
            must(answer.remaining >= 0 && answer.remaining <= counted.policy.limit());
            must(!answer.retry_after || answer.retry_after->count() >= 0);
        }
    }
    KeyReply part;
    for (const Algorithm algorithm : { Algorithm::fixed_window, Algorithm::gcra }) {
        LimitCheck check;
        check.policy = { algorithm, { 10, std::chrono::seconds{ 60 } }, 5, {} };
        const std::size_t own = reply.len - std::min(reply.len, sizeof(double));
        if (reply.type != REDIS_REPLY_STRING
            || !read_sequence_reply(
                { { reply.str, own }, { reply.str + own, reply.len - own } }, check.policy, 1,
                part)) {
            continue;
        }
        must(part.reset_before.count() >= 0 && part.server_time.count() >= 0);
        must(part.remaining >= 0 && part.remaining <= check.policy.limit());
        must(part.reset.count() >= 0);
        must(!part.retry_after || part.retry_after->count() >= 0);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    redisReader* reader = redisReaderCreate();
    const redis::ReplyLimits limits(*reader);
    redisReaderFeed(reader, reinterpret_cast<const char*>(data), size);
    void* reply = nullptr;
    while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply != nullptr) {
        read(*static_cast<const redisReply*>(reply));
        freeReplyObject(reply);
        reply = nullptr;
    }
    redisReaderFree(reader);
    return 0;
}

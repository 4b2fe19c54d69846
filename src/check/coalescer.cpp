#include "check/coalescer.h"

namespace ratelimit {

bool Coalescer::send(ShardPart& part) noexcept
{
    if (part.since.count() == 0) {
        part.since = queues_.client.now();
    }
    const bool sent = send_or_wait(part);
    part.end = sent ? ShardPart::End::pending : ShardPart::End::failed;
    return sent;
}

bool Coalescer::send_or_wait(ShardPart& part) noexcept
try {
    KeyedHash keys = queues_.table.begin_hash();
    for (const RemoteLimit* limit : part.limits) {
        keys.add(limit->key);
    }
    const std::size_t hash = keys.finish();
    KeyQueue* const found =
        queues_.table.find(hash, [&part](const KeyQueue& queue) { return queue.matches(part); });
    if (found == nullptr) {
        return queues_.table.add(hash, queues_).begin(part);
    }
    // A call in flight was sent before the breaker opened: no check waits for it.
    if (queues_.client.refuses(part.limits.front()->shard)) {
        return false;
    }
    found->wait(part);
    ++waited_;
    return true;
} catch (const std::exception&) {
    return false;  // out of memory: as without a connection
}

}  // namespace ratelimit

#include "check/coalescer.h"

namespace ratelimit {

Coalescer::Coalescer(redis::Client& client, NodeTime node_time)
    : client_(client), node_time_(node_time)
{
}

Coalescer::~Coalescer() = default;

bool Coalescer::send(ShardPart& part) noexcept
try {
    if (part.expires.count() == 0) {
        part.expires = client_.now() + client_.longest_wait();
    }
    const bool sent = send_or_wait(part);
    part.end = sent ? ShardPart::End::pending : ShardPart::End::failed;
    return sent;
} catch (const std::exception&) {
    part.end = ShardPart::End::failed;  // out of memory: as without a connection
    return false;
}

bool Coalescer::send_or_wait(ShardPart& part)
{
    std::size_t hash = 0;
    for (const RemoteLimit* limit : part.limits) {
        constexpr std::size_t factor = 31;
        hash = hash * factor + calls_.hash_of(limit->redis_key);
    }
    Entry* const found =
        calls_.find(hash, [&part](const Entry& entry) { return entry.matches(part); });
    if (found != nullptr) {
        // With an open breaker, a call in flight was sent before that: no check waits for it.
        if (client_.refuses(part.limits.front()->shard)) {
            return false;
        }
        found->wait(part);
        ++waited_;
        return true;
    }
    Entry& entry = calls_.add(hash, *this);
    if (!entry.begin(part)) {
        remove(entry);
        return false;
    }
    return true;
}

}  // namespace ratelimit

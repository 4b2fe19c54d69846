#include "check/coalescer.h"

#include <functional>

namespace ratelimit {

namespace {

std::size_t hash_of(std::span<RemoteLimit* const> limits) noexcept
{
    std::size_t hash = 0;
    for (const RemoteLimit* limit : limits) {
        constexpr std::size_t factor = 31;
        hash = hash * factor + std::hash<std::string_view>{}(limit->redis_key);
    }
    return hash;
}

}  // namespace

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
    const std::size_t hash = hash_of(part.limits);
    if (Entry* entry = find(hash, part)) {
        // The breaker is open, so the call in flight was sent before that: no check waits for it.
        if (client_.refuses(part.limits.front()->shard)) {
            return false;
        }
        entry->wait(part);
        ++waited_;
        return true;
    }
    Entry& entry = add(hash);
    if (!entry.begin(part)) {
        remove(entry);
        return false;
    }
    return true;
}

Coalescer::Entry* Coalescer::find(std::size_t hash, const ShardPart& part) noexcept
{
    Entry* entry = bucket_of(hash);
    while (entry != nullptr && !(entry->hash == hash && entry->matches(part))) {
        entry = entry->next;
    }
    return entry;
}

Coalescer::Entry& Coalescer::add(std::size_t hash)
{
    if (used_ == buckets_.size()) {
        grow();
    }
    if (unused_ == nullptr) {
        unused_ = &all_.emplace_back(*this);
    }
    Entry& entry = *unused_;
    entry.hash = hash;
    unused_ = std::exchange(entry.next, bucket_of(hash));
    bucket_of(hash) = &entry;
    ++used_;
    return entry;
}

void Coalescer::grow()
{
    std::vector<Entry*> old(2 * buckets_.size());
    std::swap(old, buckets_);
    for (Entry* first : old) {
        while (first != nullptr) {
            Entry*& bucket = bucket_of(first->hash);
            Entry* next = std::exchange(first->next, bucket);
            bucket = std::exchange(first, next);
        }
    }
}

void Coalescer::remove(Entry& entry) noexcept
{
    Entry** link = &bucket_of(entry.hash);
    while (*link != &entry) {
        link = &(*link)->next;
    }
    *link = std::exchange(entry.next, unused_);
    unused_ = &entry;
    --used_;
}

}  // namespace ratelimit

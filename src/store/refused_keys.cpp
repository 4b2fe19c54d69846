#include "store/refused_keys.h"

#include "store/slab_lock.h"

#include <utility>

namespace ratelimit {

/// In Shared::refused, or in Shared::ending since it was let in.
struct RefusedKeys::Entry : KeyedNode {
    ngx_msec_t began;
    ngx_msec_t last;   // when it took its place in the queue
    ngx_uint_t count;  // of refusals
    u_char level;      // of the log
    bool named;        // its beginning was logged, and its end is to be

    Kind kind() const noexcept { return static_cast<Kind>(tag()); }
    static Entry* of(ngx_queue_t* link) noexcept
    {
        return static_cast<Entry*>(KeyedNode::of(link));
    }
};

namespace {

constexpr ngx_msec_int_t shortest_run_ms = 1000;
constexpr ngx_msec_int_t idle_limit_ms = 60'000;
constexpr int most_swept = 100;  // at once, with the lock

ngx_msec_int_t elapsed(ngx_msec_t since, ngx_msec_t now) noexcept
{
    return static_cast<ngx_msec_int_t>(now - since);
}

}  // namespace

bool RefusedKeys::Lines::take(ngx_msec_t now, ngx_uint_t most) noexcept
{
    // Workers' clocks are a little apart; by more than that, it is the first second.
    const auto past = elapsed(since, now);
    if (past >= 1000 || past < -1000) {
        since = now;
        count = 0;
    }
    return count++ < most;
}

void RefusedKeys::Shared::init() noexcept
{
    tree.init();
    ngx_queue_init(&refused);
    ngx_queue_init(&ending);
    blocks = 0;
    forgotten.count = 0;
    logs = {};
}

bool RefusedKeys::empty() const noexcept
{
    return shared_->tree.size() == 0 && log_of(Kind::refused).unnamed.keys == 0
        && log_of(Kind::delayed).unnamed.keys == 0;
}

RefusedKeys::Entry* RefusedKeys::find(std::string_view key, Kind kind) const noexcept
{
    return static_cast<Entry*>(shared_->tree.find(key, static_cast<u_char>(kind)));
}

/// Empty: it was not named.
std::optional<RefusedKeys::Ended> RefusedKeys::remove(Entry& entry) noexcept
{
    const bool named = entry.named;
    Ended ended{ {}, entry.key_length(), entry.kind(), entry.level, entry.count };
    entry.copy_key(ended.key_bytes.data());
    ngx_queue_remove(&entry.queue);
    shared_->tree.remove(entry, blocks_);
    return named ? std::optional(ended) : std::nullopt;
}

bool RefusedKeys::forget_oldest() noexcept
{
    Entry* oldest = nullptr;
    for (ngx_queue_t* queue : { &shared_->refused, &shared_->ending }) {
        if (ngx_queue_empty(queue)) {
            continue;
        }
        Entry* last = Entry::of(ngx_queue_last(queue));
        if (oldest == nullptr || elapsed(last->last, oldest->last) > 0) {
            oldest = last;
        }
    }
    if (oldest == nullptr) {
        return false;
    }
    const auto forgotten = remove(*oldest);
    if (forgotten && shared_->forgotten.count == 0) {
        shared_->forgotten = *forgotten;
    }
    return true;
}

bool RefusedKeys::may_tell(Kind kind, ngx_msec_t now) noexcept
{
    return log_of(kind).ends.take(now, lines_a_second);
}

std::optional<RefusedKeys::Ended> RefusedKeys::take_forgotten(ngx_msec_t now) noexcept
{
    if (shared_->forgotten.count == 0 || !may_tell(shared_->forgotten.kind, now)) {
        return std::nullopt;
    }
    const Ended forgotten = shared_->forgotten;
    shared_->forgotten.count = 0;
    return forgotten;
}

RefusedKeys::ToLog RefusedKeys::begin(
    std::string_view key, Kind kind, ngx_uint_t level, bool logs, ngx_msec_t now) noexcept
{
    const SlabLock lock(pool_);

    ToLog to_log;
    Entry* entry = find(key, kind);
    const bool first = entry == nullptr;
    if (first) {
        entry = shared_->tree.add<Entry>(key, static_cast<u_char>(kind), blocks_);
        to_log.forgotten = take_forgotten(now);
        if (entry == nullptr) {
            return to_log;  // not even room for one: no line rather than one a request
        }
        entry->began = now;
        entry->count = 0;
        entry->named = false;
    } else {
        ngx_queue_remove(&entry->queue);
    }
    ngx_queue_insert_head(&shared_->refused, &entry->queue);
    entry->last = now;
    entry->level = static_cast<u_char>(level);
    ++entry->count;
    if (logs && !entry->named) {
        Log& log = log_of(kind);
        to_log.run = entry->named = log.begins.take(now, lines_a_second);
        if (first && !to_log.run) {
            log.unnamed = { log.unnamed.keys + 1, level };
        }
        to_log.unnamed = unnamed_until(kind, now).keys;
    }
    return to_log;
}

std::optional<RefusedKeys::Ended> RefusedKeys::let_in(
    std::string_view key, Kind kind, ngx_msec_t now) noexcept
{
    const SlabLock lock(pool_);

    Entry* entry = find(key, kind);
    if (entry == nullptr) {
        return std::nullopt;
    }
    if (elapsed(entry->began, now) >= shortest_run_ms && (!entry->named || may_tell(kind, now))) {
        return remove(*entry);
    }
    ngx_queue_remove(&entry->queue);
    ngx_queue_insert_head(&shared_->ending, &entry->queue);
    entry->last = now;
    return std::nullopt;
}

RefusedKeys::Entry* RefusedKeys::oldest_over(ngx_msec_t now) const noexcept
{
    for (const auto& [queue, limit] : { std::pair{ &shared_->ending, shortest_run_ms },
                                        std::pair{ &shared_->refused, idle_limit_ms } }) {
        if (ngx_queue_empty(queue)) {
            continue;
        }
        Entry* oldest = Entry::of(ngx_queue_last(queue));
        if (elapsed(oldest->last, now) >= limit) {
            return oldest;
        }
    }
    return nullptr;
}

bool RefusedKeys::sweep(ngx_msec_t now, std::optional<Ended>& ended) noexcept
{
    const SlabLock lock(pool_);

    ended = take_forgotten(now);
    for (int i = 0; i < most_swept && !ended; ++i) {
        Entry* entry = oldest_over(now);
        if (entry == nullptr || (entry->named && !may_tell(entry->kind(), now))) {
            return false;
        }
        ended = remove(*entry);
    }
    return true;
}

/// Nothing, where it was asked less than a second ago.
RefusedKeys::Unnamed RefusedKeys::unnamed_until(Kind kind, ngx_msec_t now) noexcept
{
    Log& log = log_of(kind);
    if (log.unnamed.keys == 0 || !log.numbers.take(now, 1)) {
        return {};
    }
    return std::exchange(log.unnamed, {});
}

RefusedKeys::Unnamed RefusedKeys::take_unnamed(Kind kind, ngx_msec_t now) noexcept
{
    const SlabLock lock(pool_);
    return unnamed_until(kind, now);
}

}  // namespace ratelimit

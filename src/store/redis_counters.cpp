#include "store/redis_counters.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

namespace ratelimit {

namespace {

using seconds = RedisCounters::seconds;

constexpr seconds fresh{ 5 };  // workers report once a second
constexpr seconds minute{ 60 };

class Lock {
public:
    explicit Lock(ngx_slab_pool_t* pool) noexcept : pool_(pool) { ngx_shmtx_lock(&pool->mutex); }
    ~Lock() { ngx_shmtx_unlock(&pool_->mutex); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

private:
    ngx_slab_pool_t* pool_;
};

void add_to(RedisCounters::Counts& all, const RedisCounters::Counts& more) noexcept
{
    for (std::size_t i = 0; i < more.latencies.size(); ++i) {
        all.latencies[i] += more.latencies[i];
    }
    for (std::size_t i = 0; i < more.errors.size(); ++i) {
        all.errors[i] += more.errors[i];
    }
    all.total_us += more.total_us;
    all.calls += more.calls;
    all.reconnects += more.reconnects;
}

}  // namespace

struct RedisCounters::Slot {
    /// A name. Only its first `most` bytes are kept and compared.
    template <std::size_t most>
    class Name {
    public:
        void set(std::string_view text) noexcept
        {
            length_ = text.copy(bytes_.data(), bytes_.size());
        }
        std::string_view view() const noexcept { return { bytes_.data(), length_ }; }
        bool is(std::string_view text) const noexcept { return view() == text.substr(0, most); }

    private:
        std::size_t length_;
        std::array<char, most> bytes_;
    };

    /// The last report of a worker. All zeros: there is none.
    struct Report {
        std::uint32_t at_s;
        Sight seen;

        bool is_fresh(seconds now) const noexcept
        {
            return at_s != 0 && now - seconds{ at_s } < fresh;
        }
    };

    struct Recent {
        std::int64_t minute;
        std::array<std::uint32_t, RedisCounters::latency_buckets> latencies;
    };

    std::int64_t reported_s;  // time of the last report
    Name<128> redis;          // empty: the slot is free
    Name<272> server;         // empty: the slot counts for the whole block
    BlockCounts block;
    Counts counts;
    std::array<Recent, 2> recent;
    std::array<Report, most_workers> workers;

    void add_recent(const Latencies& latencies, seconds now) noexcept
    {
        const std::int64_t current = now / minute;
        Recent& part = recent[static_cast<std::size_t>(current % 2)];
        if (part.minute != current) {
            part = {};
            part.minute = current;
        }
        for (std::size_t i = 0; i < latencies.size(); ++i) {
            part.latencies[i] += static_cast<std::uint32_t>(latencies[i]);
        }
    }

    /// The server as the first `count` workers see it. Empty: none of them has a fresh report.
    std::optional<Server> seen_by(std::size_t count, seconds now) const
    {
        Server seen{ std::string(server.view()), counts, {} };
        bool reported = false;
        for (const Report& worker : std::span(workers).first(std::min(count, most_workers))) {
            if (worker.is_fresh(now)) {
                reported = true;
                seen.workers_up += worker.seen.up ? 1 : 0;
                seen.breakers_open += worker.seen.breaker_open ? 1 : 0;
            }
        }
        for (const Recent& part : recent) {
            if (part.minute >= now / minute - 1) {
                for (std::size_t i = 0; i < part.latencies.size(); ++i) {
                    seen.recent[i] += part.latencies[i];
                }
            }
        }
        return reported ? std::optional(std::move(seen)) : std::nullopt;
    }
};

struct RedisCounters::Shared {
    std::array<Slot, 128> slots;
};

ngx_int_t RedisCounters::init(ngx_shm_zone_t* zone, void* old_data) noexcept
{
    static_assert(
        sizeof(Shared) < memory_size - memory_size / 8, "must fit beside the pool's data");
    auto* pool = reinterpret_cast<ngx_slab_pool_t*>(zone->shm.addr);
    zone->data = pool;  // the old_data of a reload that keeps the memory
    if (old_data != nullptr || zone->shm.exists) {
        return NGX_OK;
    }
    pool->data = ngx_slab_calloc_locked(pool, sizeof(Shared));
    return pool->data == nullptr ? NGX_ERROR : NGX_OK;
}

RedisCounters::Shared& RedisCounters::shared() const noexcept
{
    return *static_cast<Shared*>(pool_->data);
}

RedisCounters::Slot* RedisCounters::find(
    std::string_view redis, std::string_view server) const noexcept
{
    auto& slots = shared().slots;
    auto* const found = std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) {
        return slot.server.is(server) && slot.redis.is(redis);
    });
    return found == slots.end() ? nullptr : found;
}

/// If all slots are used, replaces the one with the oldest report. Null: that report is fresh.
RedisCounters::Slot* RedisCounters::find_or_add(
    std::string_view redis, std::string_view server, seconds now) noexcept
{
    if (Slot* known = find(redis, server)) {
        return known;
    }
    auto& slots = shared().slots;
    auto& slot =
        *std::min_element(slots.begin(), slots.end(), [](const Slot& left, const Slot& right) {
            return left.reported_s < right.reported_s;
        });
    if (!slot.redis.view().empty() && now - seconds{ slot.reported_s } < fresh) {
        return nullptr;
    }
    std::memset(static_cast<void*>(&slot), 0, sizeof(slot));
    slot.redis.set(redis);
    slot.server.set(server);
    return &slot;
}

void RedisCounters::add(
    std::string_view redis, std::string_view server, const Counts& counts, const Sight* sight,
    unsigned worker, seconds now) noexcept
{
    const Lock lock(pool_);

    Slot* slot = find_or_add(redis, server, now);
    if (slot == nullptr) {
        return;
    }
    slot->reported_s = now.count();
    add_to(slot->counts, counts);
    slot->add_recent(counts.latencies, now);
    if (sight != nullptr && worker < most_workers) {
        slot->workers[worker] = { static_cast<std::uint32_t>(now.count()), *sight };
    }
}

void RedisCounters::add(std::string_view redis, const BlockCounts& counts, seconds now) noexcept
{
    const Lock lock(pool_);

    if (Slot* slot = find_or_add(redis, {}, now)) {
        slot->reported_s = now.count();
        slot->block.coalesced += counts.coalesced;
        slot->block.failed += counts.failed;
    }
}

RedisCounters::BlockCounts RedisCounters::block(std::string_view redis) const noexcept
{
    const Lock lock(pool_);

    const Slot* slot = find(redis, {});
    return slot == nullptr ? BlockCounts{} : slot->block;
}

std::vector<RedisCounters::Server> RedisCounters::servers(
    std::string_view redis, unsigned workers, seconds now) const
{
    // Each slot is copied under the lock, so that nothing is allocated while the lock is held.
    auto slot = std::make_unique<Slot>();
    std::vector<Server> servers;
    for (const Slot& shared_slot : shared().slots) {
        {
            const Lock lock(pool_);
            if (!shared_slot.redis.is(redis) || shared_slot.server.view().empty()) {
                continue;
            }
            *slot = shared_slot;
        }
        if (auto server = slot->seen_by(workers, now)) {
            servers.push_back(std::move(*server));
        }
    }
    std::sort(servers.begin(), servers.end(), [](const Server& left, const Server& right) {
        return left.name < right.name;
    });
    return servers;
}

}  // namespace ratelimit

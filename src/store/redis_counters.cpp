#include "store/redis_counters.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace ratelimit {

namespace {

using seconds = RedisCounters::seconds;

constexpr seconds fresh{ 5 };  // workers tell once a second
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

/// A name of at most so many bytes: a longer one is told by its beginning.
template <std::size_t most>
class Name {
public:
    void set(std::string_view text) noexcept { length_ = text.copy(bytes_.data(), bytes_.size()); }
    std::string_view view() const noexcept { return { bytes_.data(), length_ }; }
    bool is(std::string_view text) const noexcept { return view() == text.substr(0, most); }

private:
    std::size_t length_;
    std::array<char, most> bytes_;
};

/// What a worker last thought, and when: of these, zeros are none.
struct Told {
    std::uint32_t at_s;
    std::uint8_t up;
    std::uint8_t breaker_open;

    bool is_fresh(seconds now) const noexcept { return at_s != 0 && now - seconds{ at_s } < fresh; }
};

struct Recent {
    std::int64_t minute;
    std::array<std::uint32_t, RedisCounters::latency_buckets> latencies;
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
    bool used;
    std::int64_t told_s;  // last
    Name<128> redis;
    Name<272> server;  // empty: of the block itself
    std::uint64_t coalesced;
    Counts counts;
    std::array<Recent, 2> recent;
    std::array<Told, most_workers> workers;

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
};

struct RedisCounters::Shared {
    std::array<Slot, 128> slots;
};

void RedisCounters::prepare(ngx_shm_zone_t& zone) noexcept
{
    static char ours;
    static_assert(sizeof(Shared) < memory_size - memory_size / 8, "beside the pool's own");
    zone.init = &RedisCounters::set_up;
    zone.data = &ours;  // tells a reload, which hands it over, from a new zone
}

ngx_int_t RedisCounters::set_up(ngx_shm_zone_t* zone, void* old_data) noexcept
{
    auto* pool = reinterpret_cast<ngx_slab_pool_t*>(zone->shm.addr);
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

const RedisCounters::Slot* RedisCounters::find(
    std::string_view redis, std::string_view server) const noexcept
{
    const auto& slots = shared().slots;
    const auto* const found = std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) {
        return slot.used && slot.server.is(server) && slot.redis.is(redis);
    });
    return found == slots.end() ? nullptr : found;
}

/// In the place of what nobody has told of for longest, when there is no other.
RedisCounters::Slot& RedisCounters::find_or_add(
    std::string_view redis, std::string_view server) noexcept
{
    if (const Slot* known = find(redis, server)) {
        return const_cast<Slot&>(*known);
    }
    auto& slots = shared().slots;
    auto& slot =
        *std::min_element(slots.begin(), slots.end(), [](const Slot& left, const Slot& right) {
            return left.used != right.used ? !left.used : left.told_s < right.told_s;
        });
    std::memset(static_cast<void*>(&slot), 0, sizeof(slot));
    slot.redis.set(redis);
    slot.server.set(server);
    slot.used = true;
    return slot;
}

void RedisCounters::add(
    std::string_view redis, std::string_view server, const Counts& counts, const Sight* sight,
    unsigned worker, seconds now) noexcept
{
    const Lock lock(pool_);

    Slot& slot = find_or_add(redis, server);
    slot.told_s = now.count();
    add_to(slot.counts, counts);
    slot.add_recent(counts.latencies, now);
    if (sight != nullptr && worker < most_workers) {
        slot.workers[worker] = { static_cast<std::uint32_t>(now.count()),
                                 static_cast<std::uint8_t>(sight->up),
                                 static_cast<std::uint8_t>(sight->breaker_open) };
    }
}

void RedisCounters::add_coalesced(
    std::string_view redis, std::uint64_t checks, seconds now) noexcept
{
    const Lock lock(pool_);

    Slot& slot = find_or_add(redis, {});
    slot.told_s = now.count();
    slot.coalesced += checks;
}

std::uint64_t RedisCounters::coalesced(std::string_view redis) const noexcept
{
    const Lock lock(pool_);

    const Slot* slot = find(redis, {});
    return slot == nullptr ? 0 : slot->coalesced;
}

std::vector<RedisCounters::Server> RedisCounters::servers(
    std::string_view redis, unsigned workers, seconds now) const
{
    std::vector<Server> servers;
    servers.reserve(shared().slots.size());  // nothing is allocated, and thrown, with the lock
    std::vector<const Slot*> known;
    known.reserve(shared().slots.size());
    for (const Slot& slot : shared().slots) {
        if (slot.used && slot.redis.is(redis) && !slot.server.view().empty()) {
            known.push_back(&slot);
        }
    }
    for (const Slot* slot : known) {
        Server server{ std::string(slot->server.view()), {}, {} };
        const Lock lock(pool_);
        unsigned told = 0;
        for (const Told& worker :
             std::span(slot->workers).first(std::min<std::size_t>(workers, most_workers))) {
            if (worker.is_fresh(now)) {
                ++told;
                server.workers_up += worker.up;
                server.breakers_open += worker.breaker_open;
            }
        }
        if (told == 0) {
            continue;
        }
        server.counts = slot->counts;
        for (const Recent& part : slot->recent) {
            if (part.minute >= now / minute - 1) {
                for (std::size_t i = 0; i < part.latencies.size(); ++i) {
                    server.recent[i] += part.latencies[i];
                }
            }
        }
        servers.push_back(std::move(server));
    }
    std::sort(servers.begin(), servers.end(), [](const Server& left, const Server& right) {
        return left.name < right.name;
    });
    return servers;
}

}  // namespace ratelimit

#include "store/fleet_memory.h"

#include "base/random.h"
#include "nginx/text.h"

#include <cerrno>
#include <csignal>
#include <new>
#include <span>
#include <utility>

namespace ratelimit {

namespace {

/// False: the system has no random numbers.
bool make_random(std::array<char, FleetMemory::id_length>& id, HashSecret& secret) noexcept
try {
    constexpr std::string_view digits = "0123456789abcdef";
    for (char& digit : id) {
        digit = digits[random_number() % digits.size()];
    }
    secret = random_secret();
    return true;
} catch (const std::exception&) {
    return false;
}

/// Tries to lock it while another worker may be changing something, which takes about a
/// millisecond.
bool locked(ngx_shmtx_t& mutex) noexcept
{
    constexpr int most_tries = 20;
    for (int i = 0; i < most_tries; ++i) {
        if (ngx_shmtx_trylock(&mutex) != 0) {
            return true;
        }
        ngx_sched_yield();
    }
    return false;
}

/// The zone of this name and tag in the configuration that runs now. Null: there is none.
ngx_shm_zone_t* zone_before(const ngx_shm_zone_t& zone) noexcept
{
    const auto* cycle = const_cast<const ngx_cycle_t*>(ngx_cycle);
    const ngx_list_part_t* part = cycle == nullptr ? nullptr : &cycle->shared_memory.part;
    for (; part != nullptr; part = part->next) {
        for (ngx_shm_zone_t& known :
             std::span(static_cast<ngx_shm_zone_t*>(part->elts), part->nelts)) {
            const bool same = nginx::view(known.shm.name) == nginx::view(zone.shm.name);
            if (same && known.tag == zone.tag && &known != &zone && known.shm.addr != nullptr) {
                return &known;
            }
        }
    }
    return nullptr;
}

bool is_alive(std::int64_t pid) noexcept
{
    return kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

}  // namespace

FleetMemory::Lock::Lock(const FleetMemory& memory) noexcept
{
    // Without a semaphore: no process waits for this lock.
    mutex_.lock = &reinterpret_cast<ngx_slab_pool_t*>(memory.zone_->shm.addr)->lock.lock;
    shared_ = locked(mutex_) ? &memory.shared() : nullptr;
    if (shared_ == nullptr) {
        return;
    }
    Shared& shared = *shared_;
    const bool died = shared.writing.exchange(true);
    ngx_memory_barrier();
    if (died) {
        ngx_log_error(
            NGX_LOG_WARN, ngx_cycle->log, 0,
            "ratelimit: a worker died while it changed the overrides, they are read again");
        memory.table().repair();
        shared.cursor = 0;
        shared.in_full_read = false;
    }
    if (const std::uint64_t wanted = shared.wanted.load(); wanted != shared.storage.load()) {
        shared.cursor = 0;
        shared.in_full_read = false;
        shared.loaded.store(false);
        shared.connected.store(false);
        shared.heard_us.store(0);
        shared.reported_us.store(0);
        shared.fewer = {};
        shared.known_ms = 0;
        shared.list_began_ms = 0;
        shared.list_is_new = false;
        shared.storage.store(wanted);  // last: `loaded` is of that place then
    }
    memory.table().count_added_zones();
}

FleetMemory::Lock::~Lock()
{
    if (shared_ == nullptr) {
        return;
    }
    ngx_memory_barrier();
    shared_->writing = false;
    ngx_shmtx_unlock(&mutex_);
}

ngx_int_t FleetMemory::init(ngx_shm_zone_t* zone, void* old_data) noexcept
{
    if (old_data != nullptr) {
        zone->data = old_data;
        return NGX_OK;
    }
    auto* pool = reinterpret_cast<ngx_slab_pool_t*>(zone->shm.addr);
    const std::size_t size = pool->pfree * ngx_pagesize;  // all that is left, in one piece
    void* memory = ngx_slab_alloc_locked(pool, size);
    if (memory == nullptr || size < sizeof(Shared) + OverrideTable::smallest_size) {
        return NGX_ERROR;
    }
    auto* shared = new (memory) Shared{};
    HashSecret secret;
    if (!make_random(shared->id, secret)) {
        return NGX_ERROR;
    }
    shared->started_us = nginx::monotonic_time().count();
    zone->data = shared;
    OverrideTable::init(shared + 1, FleetMemory(*zone).table_size(), secret);
    if (ngx_shm_zone_t* before = zone_before(*zone)) {
        FleetMemory(*zone).keep(FleetMemory(*before));
    }
    return NGX_OK;
}

/// Takes over all that is known in the memory of another size. While that is locked by a worker
/// that is stopped, everything is read from Redis.
void FleetMemory::keep(const FleetMemory& before) const noexcept
{
    const Lock lock(before);
    if (!lock) {
        return;
    }
    const Shared& known = before.shared();
    Shared& own = shared();
    own.id = known.id;
    own.started_us = known.started_us;
    own.past = known.past;
    own.nodes.store(known.nodes.load());
    own.offset_us.store(known.offset_us.load());
    own.wanted.store(known.wanted.load());
    own.storage.store(known.storage.load());
    if (table().copy(before.table()) && !known.in_full_read && known.unfit == 0) {
        own.cursor = known.cursor;
        own.missing = known.missing;
        own.connected.store(known.connected.load());
        own.heard_us.store(known.heard_us.load());
        own.reported_us.store(known.reported_us.load());
        own.loaded.store(known.loaded.load());
        own.known_ms = known.known_ms;
        own.list_began_ms = known.list_began_ms;
    }
}

OverrideTable FleetMemory::table() const noexcept
{
    return { &shared() + 1, table_size() };
}

/// To the end of the memory.
std::size_t FleetMemory::table_size() const noexcept
{
    const auto begin =
        static_cast<std::size_t>(static_cast<u_char*>(zone_->data) - zone_->shm.addr);
    return zone_->shm.size - begin - sizeof(Shared);
}

bool FleetMemory::lead(milliseconds now, milliseconds lease) const noexcept
{
    Shared& all = shared();
    std::int64_t current = all.leader.load();
    const std::int64_t own = ngx_pid;
    if (current != own) {
        const bool taken =
            current != 0 && now.count() < all.leads_until.load() && is_alive(current);
        if (taken || !all.leader.compare_exchange_strong(current, own)) {
            return false;
        }
    }
    all.leads_until.store((now + lease).count());
    return true;
}

void FleetMemory::stop_leading() const noexcept
{
    std::int64_t own = ngx_pid;
    shared().leader.compare_exchange_strong(own, 0);
}

}  // namespace ratelimit

#include "store/zone_memory.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace ratelimit {

namespace {

constexpr std::size_t tables = 5;                                         // with a KeyedTree
static_assert(TopRefused::counter_size % alignof(KeyedTree::Root) == 0);  // the roots follow

template <auto structure>
bool forget_oldest(const ZoneMemory& memory) noexcept
{
    return (memory.*structure)().forget_oldest();
}

}  // namespace

ngx_int_t ZoneMemory::init(ngx_shm_zone_t* zone, void* old_data) noexcept
{
    auto* pool = reinterpret_cast<ngx_slab_pool_t*>(zone->shm.addr);
    zone->data = pool;  // the old_data of a reload that keeps the memory
    if (old_data != nullptr || zone->shm.exists) {
        return NGX_OK;
    }
    Shared* shared = begin(pool);
    if (shared == nullptr) {
        return NGX_ERROR;
    }
    shared->held = false;
    shared->counters.init();
    shared->history.init(History::series_for(zone->shm.size));
    shared->evictions = 0;
    return NGX_OK;
}

ZoneMemory::ZoneMemory(ngx_slab_pool_t* pool) noexcept
    : pool_(pool), shared_(static_cast<Shared*>(static_cast<ZoneLock::Head*>(pool->data)))
{
}

/// Initialises an empty pool, except `held`, `counters`, `history` and `evictions`, which survive a
/// reset.
/// Null: the memory is too small.
ZoneMemory::Shared* ZoneMemory::begin(ngx_slab_pool_t* pool) noexcept
{
    // The slab allocator rounds this size up to whole pages. The most refused keys get the rest.
    const std::size_t page = ngx_pagesize;
    const auto zone = static_cast<std::size_t>(pool->end - reinterpret_cast<u_char*>(pool));
    const std::size_t slots = History::slots_size(History::series_for(zone));
    const std::size_t roots = KeyedTree::roots_for(zone);  // of each table
    const std::size_t others = slots + tables * roots * sizeof(KeyedTree::Root);
    const std::size_t spare = (page - (sizeof(Shared) + others) % page) % page;
    const std::size_t counters = TopRefused::capacity_for(zone, spare);
    const std::size_t size = sizeof(Shared) + counters * TopRefused::counter_size;
    auto* shared = static_cast<Shared*>(ngx_slab_alloc_locked(pool, size + others));
    if (shared == nullptr) {
        return nullptr;
    }
    shared->reset = &ZoneMemory::reset;
    shared->make_room = &ZoneMemory::make_room;
    auto* next = reinterpret_cast<KeyedTree::Root*>(reinterpret_cast<u_char*>(shared) + size);
    const auto take = [&next, roots] {
        return std::span(std::exchange(next, next + roots), roots);
    };
    shared->log_runs.init(take());
    shared->denials.init(take());
    shared->leases.init(take());
    shared->last_answers.init(take());
    shared->local_limiter.init(take());
    shared->held_units.init();
    shared->top_refused.init(counters);
    shared->history.slots = reinterpret_cast<std::uint16_t*>(next);
    pool->data = static_cast<ZoneLock::Head*>(shared);
    pool->log_nomem = 0;  // full memory is not an error: entries are evicted
    return shared;
}

/// Shared and the slots of the history get the same addresses as before, so they, `counters` and
/// `evictions` keep their values. `held` stays set in case this worker is killed too.
void ZoneMemory::reset(ngx_slab_pool_t* pool) noexcept
{
    ngx_slab_init(pool);
    begin(pool);
}

/// Evicts an entry of the table with the largest share.
bool ZoneMemory::make_room(ngx_slab_pool_t* pool, const ngx_uint_t& needs_it) noexcept
{
    struct Share {
        bool (*forget_oldest)(const ZoneMemory& memory) noexcept;
        ngx_uint_t weighted;  // blocks, times 3 if Redis has the counts or if they are for the log
        bool counts = true;   // as an eviction: log runs are no reason for a larger zone
    };
    const ZoneMemory memory(pool);
    Shared& all = *memory.shared_;
    std::array<Share, tables> shares = {
        Share{ forget_oldest<&ZoneMemory::log_runs>, 3 * all.log_runs.blocks, false },
        Share{ forget_oldest<&ZoneMemory::denials>, 3 * all.denials.blocks },
        Share{ forget_oldest<&ZoneMemory::leases>, 3 * all.leases.blocks },
        Share{ forget_oldest<&ZoneMemory::last_answers>, 3 * all.last_answers.blocks },
        Share{ forget_oldest<&ZoneMemory::local_limiter>, all.local_limiter.blocks },
    };
    // If the counts of one key fill the memory, its own refusal must not evict them.
    if (&needs_it != &all.local_limiter.blocks && !all.local_limiter.used.has_several()) {
        shares.back().weighted = 0;
    }
    std::sort(shares.begin(), shares.end(), [](const Share& left, const Share& right) {
        return left.weighted > right.weighted;
    });
    for (const Share& share : shares) {
        if (share.weighted > 0 && share.forget_oldest(memory)) {
            set_relaxed(all.evictions, all.evictions + (share.counts ? 1 : 0));
            return true;
        }
    }
    // A new key waits for Redis rather than take the place of one with little left.
    if (&needs_it == &all.last_answers.blocks || !memory.last_answers().forget_oldest_scarce()) {
        return false;
    }
    set_relaxed(all.evictions, all.evictions + 1);
    return true;
}

std::uint64_t ZoneMemory::keys() const noexcept
{
    return shared_->denials.tree.size() + shared_->leases.tree.size()
        + shared_->last_answers.tree.size() + shared_->local_limiter.tree.size();
}

bool ZoneMemory::forget_key(std::string_view key) const noexcept
{
    denials().forget_key(key);
    leases().forget_key(key);
    last_answers().forget_key(key);
    top_refused().forget(key);
    return local_limiter().forget_key(key);
}

}  // namespace ratelimit

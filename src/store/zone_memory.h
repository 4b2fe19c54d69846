#pragma once

#include "base/relaxed.h"
#include "nginx/ngx.h"
#include "store/denial_cache.h"
#include "store/held_units.h"
#include "store/history.h"
#include "store/last_answers.h"
#include "store/local_limiter.h"
#include "store/log_runs.h"
#include "store/shared_blocks.h"
#include "store/token_leases.h"
#include "store/top_refused.h"
#include "store/zone_counters.h"

namespace ratelimit {

/// The shared memory of one zone, and the structures in it. It survives a reload that leaves the
/// zone's size unchanged.
///
/// Layout: the slab pool's data is one Shared, with the Shared of each structure, followed by the
/// counters of the most refused keys, the roots of the tables and the slots of the history. All
/// that the structures allocate are SharedBlocks. ZoneLock is the lock of all but `counters`.
class ZoneMemory {
public:
    /// The callback by which nginx initialises the zone's memory. `old_data`: null, or the data of
    /// the zone whose memory a reload keeps.
    static ngx_int_t init(ngx_shm_zone_t* zone, void* old_data) noexcept;

    /// Call after nginx has initialised the zone's memory.
    explicit ZoneMemory(ngx_shm_zone_t& zone) noexcept
        : ZoneMemory(reinterpret_cast<ngx_slab_pool_t*>(zone.shm.addr))
    {
    }

    LogRuns log_runs() const noexcept { return { pool_, shared_->log_runs }; }
    DenialCache denials() const noexcept { return { pool_, shared_->denials }; }
    TokenLeases leases() const noexcept { return { pool_, shared_->leases }; }
    LastAnswers last_answers() const noexcept { return { pool_, shared_->last_answers }; }
    LocalLimiter local_limiter() const noexcept { return { pool_, shared_->local_limiter }; }
    ZoneCounters counters() const noexcept { return ZoneCounters(shared_->counters); }
    HeldUnitsCount held_units() const noexcept { return { pool_, shared_->held_units }; }
    TopRefused top_refused() const noexcept { return { pool_, shared_->top_refused }; }
    History history() const noexcept { return { pool_, shared_->history }; }

    /// How many keys have counts, leases, a last answer or a remembered refusal in this memory.
    std::uint64_t keys() const noexcept;
    /// How many of those were evicted because memory was full.
    std::uint64_t evictions() const noexcept { return relaxed(shared_->evictions); }

    /// Removes a key's counts, leases, last answers and remembered refusals under all policies, and
    /// its counter of refusals. Returns whether anything was counted under it in this memory.
    bool forget_key(std::string_view key) const noexcept;

private:
    struct Shared : ZoneLock::Head {
        LogRuns::Shared log_runs;
        DenialCache::Shared denials;
        TokenLeases::Shared leases;
        LastAnswers::Shared last_answers;
        LocalLimiter::Shared local_limiter;
        ZoneCounters::Shared counters;
        HeldUnitsCount::Shared held_units;
        History::Shared history;
        std::uint64_t evictions;
        TopRefused::Shared top_refused;  // last: its counters follow
    };

    explicit ZoneMemory(ngx_slab_pool_t* pool) noexcept;

    static Shared* begin(ngx_slab_pool_t* pool) noexcept;
    static void reset(ngx_slab_pool_t* pool) noexcept;
    static bool make_room(ngx_slab_pool_t* pool, const ngx_uint_t& needs_it) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
};

}  // namespace ratelimit

#pragma once

#include "limit/decision.h"
#include "nginx/ngx.h"
#include "store/keyed_request.h"
#include "store/lru_table.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// The keys of one zone that Redis refuses for now, in the zone's shared memory, so that a flood is
/// refused by any worker without asking. Only time frees a refused key, so a refusal that is taken
/// from here is one that Redis would give. Full memory forgets the keys that were used least
/// recently, of which Redis is then asked again.
///
/// Layout: one Shared: a table of Entries by key and KeyedRequest::tag. A call takes the zone's
/// lock.
class DenialCache {
    struct Entry;

public:
    /// Servers have numbers; those that are equal in these bits share a generation.
    static constexpr unsigned server_bits = 6;
    struct Shared : LruTable<Entry>::Shared {
        // By server: entries of earlier generations are void.
        std::array<std::uint16_t, 1U << server_bits> generations;
        void init() noexcept;
    };

    /// No refusal is remembered for longer, so that clocks that run apart, or a key that was freed
    /// in Redis by hand, are noticed.
    static constexpr microseconds longest{ std::chrono::seconds{ 60 } };

    DenialCache(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : shared_(&shared), table_(pool, shared, SharedBlocks::Owner::denials)
    {
    }

    struct Denial {
        Verdict state;      // as it stands now, for that cost
        std::int64_t cost;  // that was refused
    };

    /// Empty: Redis has to be asked. Times are of one clock for each policy.
    std::optional<Denial> find(const KeyedRequest& request, microseconds now) noexcept;

    /// Remembers a refusal by the server of this number until its retry time, but not longer than
    /// `at_most`; one that has none, not at all. `sent`: no later than the check was sent, so that
    /// the time is not over later than for Redis.
    void add(
        const KeyedRequest& request, std::uint32_t server, const Verdict& refusal,
        microseconds sent, microseconds now, microseconds at_most) noexcept;

    /// What this server has refused: it may have lost its counts.
    void forget_server(std::uint32_t server) noexcept;
    /// What is known of the key under any policy.
    void forget_key(std::string_view key) noexcept;

    /// Forgets the key that was used least recently. False: there is none. The caller has the lock.
    bool forget_oldest() noexcept;

    /// Without the lock: whether there is anything to look for.
    bool empty() const noexcept { return table_.size() == 0; }

private:
    std::uint64_t stamp_of(const KeyedRequest& request, std::uint64_t server) const noexcept;
    bool is_of(const Entry& entry, const KeyedRequest& request) const noexcept;
    Entry* find_entry(const KeyedRequest& request) const noexcept;
    Entry* find_or_add(const KeyedRequest& request) noexcept;

    Shared* shared_;
    LruTable<Entry> table_;
};

}  // namespace ratelimit

#pragma once

#include "limit/verdict.h"
#include "nginx/ngx.h"
#include "store/keyed_request.h"
#include "store/lru_table.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// Remembered refusals by Redis, in the shared memory of one zone, so that each worker can refuse a
/// flood without Redis. A refused key mostly becomes free by the passing of time only, so Redis
/// would refuse as well. If memory is full, the least recently used keys are evicted.
///
/// Layout: one Shared, a table of Entries by key and KeyedRequest::tag. Public functions take the
/// zone's lock unless stated otherwise.
class DenialCache {
    struct Entry;

public:
    /// Servers whose numbers are equal in these low bits share a generation.
    static constexpr unsigned server_bits = 6;
    struct Shared : LruTable<Entry>::Shared {
        // By server; entries of earlier generations are invalid.
        std::array<std::uint16_t, 1U << server_bits> generations;
        // By hash of the key: how often the refusals of such a key were forgotten.
        std::array<std::atomic<std::uint8_t>, 128> forgets;
        void init(std::span<KeyedTree::Root> roots) noexcept;
    };

    /// A refusal is not remembered for longer. This bounds the effect of events that this node does
    /// not know: refunds by nodes that have charge= for the zone, clocks that drift apart, a key
    /// that was deleted in Redis.
    static constexpr microseconds longest{ std::chrono::seconds{ 5 } };

    DenialCache(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : shared_(&shared), table_(pool, shared)
    {
    }

    struct Denial {
        Verdict state;      // as of now, for a request of `cost`
        std::int64_t cost;  // the cost that was refused, at most that of the request
    };

    /// The remembered refusal that applies to the request. Empty: there is none. For each policy,
    /// all times given to this class must be of one clock.
    std::optional<Denial> find(const KeyedRequest& request, microseconds now) noexcept;

    struct Check {
        std::uint32_t server;  // Client::server_of
        std::uint8_t forgets;  // forgets_of its key, from before it was sent
        microseconds sent;     // a lower bound, so that a refusal ends no later than in Redis
    };

    /// Remembers a check's refusal until its retry time, but for at most `at_most`; a refusal
    /// without a retry time is not remembered, nor one of a key that was forgotten since the check
    /// was sent. While a block lasts, it refuses every cost, and ends by time alone: it is
    /// remembered for at most `longest`.
    void add(
        const KeyedRequest& request, const Check& check, const Verdict& refusal, microseconds now,
        microseconds at_most) noexcept;

    /// How often the refusals of this key, or of another one with its hash, were forgotten. Does
    /// not take the lock.
    std::uint8_t forgets_of(std::string_view key) const noexcept { return counter_of(key); }

    /// Invalidates the refusals by this server, because it may have lost its counts.
    void forget_server(std::uint32_t server) noexcept;
    /// Removes the refusals of the key under all policies. Its checks in flight add none.
    void forget_key(std::string_view key) noexcept;

    /// Evicts the least recently used key. False: there is none. The caller must hold the lock.
    bool forget_oldest() noexcept;

    /// False: no refusal of the key is remembered. Does not take the lock.
    bool may_have(std::string_view key) const noexcept { return table_.may_have(key); }

private:
    std::atomic<std::uint8_t>& counter_of(std::string_view key) const noexcept
    {
        return shared_->forgets[KeyedTree::hash_of(key) % shared_->forgets.size()];
    }
    std::uint64_t stamp_of(const KeyedRequest& request, std::uint64_t server) const noexcept;
    bool is_of(const Entry& entry, const KeyedRequest& request) const noexcept;

    Shared* shared_;
    LruTable<Entry> table_;
};

}  // namespace ratelimit

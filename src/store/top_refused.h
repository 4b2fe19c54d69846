#pragma once

#include "nginx/ngx.h"
#include "store/keyed_tree.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ratelimit {

/// The keys of one zone that are refused most, in memory that does not grow: the space-saving
/// sketch (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in
/// Data Streams", 2005). A key that has no counter takes over the smallest one, with what that had
/// counted as its error, so that every key that was refused more often than all refusals divided by
/// the counters has one. A key that was not refused for an hour lapses.
///
/// Layout: one Shared, at the end of its owner's memory, and behind it the Ranks, then the Keys, of
/// as many counters; all under the zone's lock.
class TopRefused {
public:
    /// What is looked at for every refusal, apart from the rest.
    struct Rank {
        std::uint64_t refused;  // 0: the counter is free
        std::uint32_t last_s;   // refusal, in seconds since the epoch
        std::uint32_t hash;
    };
    struct Key {
        std::uint64_t error;  // so many of its refusals may be other keys'
        std::uint32_t length;
        std::array<char, KeyedNode::key_limit> bytes;

        std::string_view view() const noexcept { return { bytes.data(), length }; }
    };
    struct Counter {
        std::uint64_t refused;
        Key key;
    };

    struct alignas(8) Shared {
        std::uint32_t capacity;  // of counters
        std::uint32_t used;      // so many of the first ones, or fewer, are in use
        std::uint32_t last;      // counter that was counted in
        void init(std::size_t counters) noexcept;
    };

    /// How many counters a zone of so many bytes has, when there is room for `spare` bytes of them
    /// at no cost.
    static std::size_t capacity_for(std::size_t zone, std::size_t spare) noexcept;

    static constexpr std::size_t counter_size = sizeof(Rank) + sizeof(Key);
    static constexpr std::uint32_t lapses_s = 3600;

    TopRefused(ngx_slab_pool_t* pool, Shared& shared) noexcept : pool_(pool), shared_(&shared) {}

    /// Counts one refusal. `now`: seconds since the epoch.
    void refuse(std::string_view key, time_t now) noexcept;
    void forget(std::string_view key) noexcept;

    /// Copies the counters of the keys that were refused most, most first, to `out`. Returns how
    /// many.
    std::size_t top(std::span<Counter> out, time_t now) const noexcept;

private:
    Rank* ranks() const noexcept { return reinterpret_cast<Rank*>(shared_ + 1); }
    Key* keys() const noexcept { return reinterpret_cast<Key*>(ranks() + shared_->capacity); }
    bool is(std::uint32_t index, std::string_view key, std::uint32_t hash) const noexcept;
    std::uint32_t find(std::string_view key, std::uint32_t hash) const noexcept;
    std::uint32_t take_over(std::uint32_t now_s) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
};

}  // namespace ratelimit

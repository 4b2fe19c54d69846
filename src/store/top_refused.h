#pragma once

#include "nginx/ngx.h"
#include "store/keyed_tree.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ratelimit {

/// The keys of one zone that are refused most, in memory of fixed size: the space-saving sketch
/// (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data
/// Streams", 2005). A key without a counter takes over the smallest one, whose count becomes the
/// error of the key. So each key with more refusals than the number of all refusals divided by the
/// number of counters has a counter. A key that was not refused for an hour expires.
///
/// Layout: one Shared at the end of its owner's memory, followed by the Ranks and then the Keys of
/// all counters. Public functions take the zone's lock.
class TopRefused {
public:
    /// What every refusal reads. It is apart from the Keys, so that it fits few cache lines.
    struct Rank {
        std::uint64_t refused;  // 0: the counter is free
        std::uint32_t last_s;   // time of the last refusal, in seconds since the epoch
        std::uint32_t hash;
    };
    struct Key {
        std::uint64_t error;  // how many of the refusals may be of other keys
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
        std::uint32_t used;      // the counters from this index on are free
        std::uint32_t last;      // index of the counter that was changed last
        void init(std::size_t counters) noexcept;
    };

    /// The number of counters for a zone of `zone` bytes, of which `spare` bytes have no other use.
    static std::size_t capacity_for(std::size_t zone, std::size_t spare) noexcept;

    static constexpr std::size_t counter_size = sizeof(Rank) + sizeof(Key);
    static constexpr std::uint32_t lapses_s = 3600;

    TopRefused(ngx_slab_pool_t* pool, Shared& shared) noexcept : pool_(pool), shared_(&shared) {}

    /// Counts one refusal. `now`: seconds since the epoch.
    void refuse(std::string_view key, time_t now) noexcept;
    void forget(std::string_view key) noexcept;

    /// Copies the counters of the keys that were refused most to `out`, in descending order.
    /// Returns their number.
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

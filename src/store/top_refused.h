#pragma once

#include "limit/rate.h"
#include "nginx/ngx.h"
#include "store/keyed_tree.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
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
    /// The part that every refusal reads, apart from the Keys, so that it fits few cache lines.
    struct Rank {
        std::uint64_t refused;  // 0: the counter is free
        std::uint32_t last_s;   // time of the last refusal, in seconds since the epoch
        std::uint32_t hash;
    };
    struct Key {
        std::uint64_t error;    // how many of the refusals may be of other keys
        std::uint64_t tried;    // how many refused no request: in a dry run or in shadow
        Rate rate;              // of the last refusal; a quota of 0: not known
        std::uint32_t first_s;  // since when the key has this counter, in seconds since the epoch
        // How many requests were refused lately: those that were only tried do not count.
        std::uint32_t step;     // of the last refusal: time divided by step_s
        std::uint32_t in_step;  // refused in it
        std::uint32_t before;   // refused in the step before it
        std::uint32_t length;
        std::array<char, KeyedNode::key_limit> bytes;

        std::string_view view() const noexcept { return { bytes.data(), length }; }
    };
    struct Counter {
        std::uint64_t refused;
        std::uint64_t per_1000_s;  // requests that are refused now, in 1000 seconds
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
    static constexpr std::uint32_t step_s = 10;

    TopRefused(ngx_slab_pool_t* pool, Shared& shared) noexcept : pool_(pool), shared_(&shared) {}

    /// The details of a refusal that are kept.
    struct Refusal {
        bool tried = false;  // in a dry run or in shadow
        Rate rate;           // a quota of 0: not known
    };

    /// Counts one refusal. `now`: seconds since the epoch.
    void refuse(std::string_view key, time_t now, const Refusal& refusal) noexcept;
    void forget(std::string_view key) noexcept;

    /// Whether a request of the key was refused, or would have been, within the last hour. `now`:
    /// seconds since the epoch. False if more keys are refused than there are counters.
    bool has(std::string_view key, time_t now) const noexcept;

    /// The rate by which the key was refused last. Empty: not known.
    std::optional<Rate> last_rate(std::string_view key) const noexcept;

    /// Copies counters to `out`: those of the keys that are refused most now, over the last 10 to
    /// 20 seconds, then of those that were refused most before. Returns their number.
    std::size_t top(std::span<Counter> out, time_t now) const noexcept;

private:
    Rank* ranks() const noexcept { return std::launder(reinterpret_cast<Rank*>(shared_ + 1)); }
    Key* keys() const noexcept { return reinterpret_cast<Key*>(ranks() + shared_->capacity); }
    std::uint32_t find(std::string_view key, std::uint32_t hash) const noexcept;
    std::uint32_t take_over(std::uint32_t now_s) noexcept;
    void count(std::uint32_t index, std::uint32_t now_s, const Refusal& refusal) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
};

}  // namespace ratelimit

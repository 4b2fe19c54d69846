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
/// Layout: one Shared, at the end of its owner's memory, and behind it the Counters; all under the
/// zone's lock.
class BusiestKeys {
public:
    struct Counter {
        std::uint64_t refused;  // 0: the counter is free
        std::uint64_t error;    // so many of them may be other keys'
        time_t last;            // refusal, in seconds since the epoch
        std::uint32_t hash;
        std::uint32_t length;
        std::array<char, KeyedNode::key_limit> bytes;

        std::string_view key() const noexcept { return { bytes.data(), length }; }
    };

    struct Shared {
        std::uint32_t capacity;  // of counters
        std::uint32_t used;      // so many of the first ones, or fewer, are in use
        std::uint32_t last;      // counter that was counted in
        void init(std::size_t counters) noexcept;
    };

    /// How many counters a zone of so many bytes has, when there is room for `spare` bytes of them
    /// at no cost.
    static std::size_t capacity_for(std::size_t zone, std::size_t spare) noexcept;

    static constexpr time_t lapses_s = 3600;

    BusiestKeys(ngx_slab_pool_t* pool, Shared& shared) noexcept : pool_(pool), shared_(&shared) {}

    /// Counts one refusal. `now`: seconds since the epoch.
    void refuse(std::string_view key, time_t now) noexcept;
    void forget(std::string_view key) noexcept;

    /// Copies the counters of the keys that were refused most, most first, to `out`. Returns how
    /// many.
    std::size_t top(std::span<Counter> out, time_t now) const noexcept;

private:
    std::span<Counter> counters() const noexcept
    {
        return { reinterpret_cast<Counter*>(shared_ + 1), shared_->capacity };
    }
    std::span<Counter> in_use() const noexcept { return counters().first(shared_->used); }
    Counter* find(std::string_view key, std::uint32_t hash) const noexcept;
    Counter& take_over(time_t now) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
};

}  // namespace ratelimit

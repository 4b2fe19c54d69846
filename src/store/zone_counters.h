#pragma once

#include "nginx/ngx.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace ratelimit {

/// Counts the decisions of one zone by outcome and source, in the zone's shared memory. There is no
/// lock, and there are several tables, so that workers seldom write to the same cache line. Reading
/// adds them up.
class ZoneCounters {
public:
    static constexpr std::size_t outcomes = 10;  // the caller defines what they mean
    static constexpr std::size_t sources = 3;

    /// Sums of costs, and numbers of keys and requests.
    enum class Units : std::uint8_t {
        passed,    // of requests that passed, as they were settled
        charged,   // by settlements, above what was counted before
        refunded,  // by settlements
        blocked,   // keys, each time that a refusal began a block
        // Requests that an override refused, and those that passed ahead of Redis; of all units,
        // since few outcomes have these sources.
        overridden,
        overridden_dry_run,
        overridden_shadow,
        ahead,
        ahead_shadow,
        ahead_beyond,  // units that Redis counted beyond the limit for those
        near_limit,    // requests that passed, and left less than a fifth
    };
    static constexpr std::size_t all_units = 11;

    struct Shared {
        static constexpr std::size_t tables = 6;  // with them a zone of 32k spends two pages
        struct alignas(64) Table {
            std::array<std::atomic<std::uint64_t>, outcomes * sources> counts;
            std::array<std::atomic<std::uint64_t>, all_units> units;
            std::atomic<std::uint32_t> highest_use;
        };
        std::array<Table, tables> all;
        void init() noexcept { new (&all) std::array<Table, tables>{}; }
    };

    explicit ZoneCounters(Shared& shared) noexcept
        : shared_(&shared), own_(&shared.all[ngx_worker % Shared::tables])
    {
    }

    void count(std::size_t outcome, std::size_t source) noexcept
    {
        // Atomic, because several workers may use one table.
        own_->counts[outcome * sources + source].fetch_add(1, std::memory_order_relaxed);
    }

    void add(Units which, std::int64_t units) noexcept
    {
        own_->units[static_cast<std::size_t>(which)].fetch_add(
            static_cast<std::uint64_t>(units), std::memory_order_relaxed);
    }

    /// A key has used so much of its limit, in percent.
    void used(std::uint32_t percent) noexcept
    {
        std::atomic<std::uint32_t>& highest = own_->highest_use;
        std::uint32_t before = highest.load(std::memory_order_relaxed);
        while (before < percent
               && !highest.compare_exchange_weak(before, percent, std::memory_order_relaxed)) {
        }
    }

    /// The highest use since the last call, in percent.
    std::uint32_t take_highest_use() noexcept
    {
        std::uint32_t highest = 0;
        for (auto& table : shared_->all) {
            if (table.highest_use.load(std::memory_order_relaxed) > 0) {
                highest =
                    std::max(highest, table.highest_use.exchange(0, std::memory_order_relaxed));
            }
        }
        return highest;
    }

    std::uint64_t sum(std::size_t outcome, std::size_t source) const noexcept
    {
        std::uint64_t total = 0;
        for (const auto& table : shared_->all) {
            total += table.counts[outcome * sources + source].load(std::memory_order_relaxed);
        }
        return total;
    }

    std::uint64_t sum(Units which) const noexcept
    {
        std::uint64_t total = 0;
        for (const auto& table : shared_->all) {
            total += table.units[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
        }
        return total;
    }

private:
    Shared* shared_;
    Shared::Table* own_;
};

}  // namespace ratelimit

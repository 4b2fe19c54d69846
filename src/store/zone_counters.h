#pragma once

#include "nginx/ngx.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ratelimit {

/// How many decisions of one zone had which outcome, in the zone's shared memory, for as long as
/// that lives. There are a few tables, so that workers seldom write to one cache line, and no lock;
/// reading sums them.
class ZoneCounters {
public:
    static constexpr std::size_t outcomes = 10;  // what they are is the caller's
    static constexpr std::size_t sources = 3;

    struct Shared {
        static constexpr std::size_t tables = 8;
        struct alignas(64) Table {
            std::array<ngx_atomic_t, outcomes * sources> counts;
        };
        std::array<Table, tables> all;
        void init() noexcept { ngx_memzero(&all, sizeof(all)); }
    };

    explicit ZoneCounters(Shared& shared) noexcept : shared_(&shared) {}

    void count(std::size_t outcome, std::size_t source) noexcept
    {
        auto& table = shared_->all[ngx_worker % Shared::tables];
        // Workers of before a reload and after it have the same numbers.
        ngx_atomic_fetch_add(&table.counts[outcome * sources + source], 1);
    }

    std::uint64_t sum(std::size_t outcome, std::size_t source) const noexcept
    {
        std::uint64_t total = 0;
        for (const auto& table : shared_->all) {
            total += table.counts[outcome * sources + source];
        }
        return total;
    }

private:
    Shared* shared_;
};

}  // namespace ratelimit

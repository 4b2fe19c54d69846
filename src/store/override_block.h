#pragma once

#include "base/relaxed.h"
#include "limit/override.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ratelimit {

struct OverrideEntry {
    Override value;
    std::uint64_t version = 0;
};

/// A block of an OverrideTable. Indices of blocks start at 1; 0: none. Readers may read a block
/// while it is written: they use what they read only if no change began meanwhile.
struct OverrideBlock {
    static constexpr std::size_t words = 9;
    static constexpr std::size_t first_bytes = words * sizeof(std::uint64_t);
    using Bytes = std::array<char, first_bytes>;

    std::uint32_t next;  // in its bucket
    std::uint32_t rest;  // the block with the rest of the key; in a free block, the next free one
    std::uint32_t hash;
    std::uint32_t full_read;  // the last one that put it
    std::uint64_t zone;
    std::uint64_t version;
    std::int64_t end_ms;
    std::uint32_t quota;
    std::uint32_t window_s;
    std::int32_t burst;  // -1: none
    Override::Kind kind;
    std::uint8_t key_length;
    std::uint8_t used;  // 1: found by repair
    Period period;      // of the rate
    std::array<std::uint64_t, words> key;

    OverrideEntry entry() const noexcept
    {
        OverrideEntry found;
        found.value.kind = relaxed(kind);
        found.value.rate = { relaxed(quota), std::chrono::seconds{ relaxed(window_s) },
                             relaxed(period) };
        if (const std::int32_t allowed = relaxed(burst); allowed >= 0) {
            found.value.burst = allowed;
        }
        found.value.end = milliseconds{ relaxed(end_ms) };
        found.version = relaxed(version);
        return found;
    }
    void set(const OverrideEntry& from) noexcept
    {
        const auto& [rate_quota, rate_window, rate_period] = from.value.rate;
        set_relaxed(kind, from.value.kind);
        set_relaxed(quota, static_cast<std::uint32_t>(rate_quota));
        set_relaxed(window_s, static_cast<std::uint32_t>(rate_window / std::chrono::seconds{ 1 }));
        set_relaxed(period, rate_period);
        set_relaxed(burst, static_cast<std::int32_t>(from.value.burst.value_or(-1)));
        set_relaxed(end_ms, std::int64_t{ from.value.end.count() });
        set_relaxed(version, from.version);
    }

    Bytes bytes() const noexcept
    {
        std::array<std::uint64_t, words> copy;
        std::transform(key.begin(), key.end(), copy.begin(), relaxed<std::uint64_t>);
        return std::bit_cast<Bytes>(copy);
    }
    /// Sets the first bytes of the key; `part` has `first_bytes` at most.
    void set_bytes(std::string_view part) noexcept
    {
        Bytes bytes{};
        part.copy(bytes.data(), bytes.size());
        const auto copy = std::bit_cast<std::array<std::uint64_t, words>>(bytes);
        for (std::size_t i = 0; i < words; ++i) {
            set_relaxed(key[i], copy[i]);
        }
    }
};

}  // namespace ratelimit

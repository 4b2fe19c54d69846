#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ratelimit::redis {

using std::chrono::microseconds;

/// Counters of one server, since they were last read.
struct ServerStats {
    /// Upper bounds of the buckets of latencies. There is one more bucket, without bound.
    static constexpr std::array<microseconds, 22> bounds = {
        microseconds{ 50 },        microseconds{ 100 },       microseconds{ 150 },
        microseconds{ 200 },       microseconds{ 300 },       microseconds{ 500 },
        microseconds{ 750 },       microseconds{ 1000 },      microseconds{ 1500 },
        microseconds{ 2000 },      microseconds{ 3000 },      microseconds{ 5000 },
        microseconds{ 7500 },      microseconds{ 10'000 },    microseconds{ 20'000 },
        microseconds{ 50'000 },    microseconds{ 100'000 },   microseconds{ 250'000 },
        microseconds{ 500'000 },   microseconds{ 1'000'000 }, microseconds{ 2'000'000 },
        microseconds{ 5'000'000 },
    };

    std::array<std::uint64_t, bounds.size() + 1> latencies{};  // replies in time, without errors
    microseconds total{ 0 };                                   // the sum of these latencies
    std::uint64_t calls = 0;     // commands sent: one for a batch, one more if it is sent again
    std::uint64_t timeouts = 0;  // requests without a reply in time
    std::uint64_t connection_errors = 0;  // connections that were lost or could not be made
    std::uint64_t error_replies = 0;      // requests with an error reply
    std::uint64_t reconnects = 0;         // connections that were made again

    void answered(microseconds took) noexcept
    {
        const auto* const bound = std::lower_bound(bounds.begin(), bounds.end(), took);
        ++latencies[static_cast<std::size_t>(bound - bounds.begin())];
        total += took;
    }
};

}  // namespace ratelimit::redis

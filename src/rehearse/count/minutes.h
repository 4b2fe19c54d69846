#pragma once

#include <cstdint>
#include <vector>

namespace ratelimit::rehearse {

/// The requests of one minute.
struct MinuteCount {
    std::int64_t minute = 0;  // since the epoch
    std::uint64_t requests = 0;
    std::uint64_t refused = 0;
};

/// Counts by minute. Times must not fall.
class Minutes {
public:
    /// `keep`: all minutes with a request are kept, not only the worst one.
    explicit Minutes(bool keep = false) noexcept : keep_(keep) {}

    /// `time` in microseconds since the epoch.
    void add(std::int64_t time, bool refused)
    {
        constexpr std::int64_t minute = 60'000'000;
        if (time >= end_) {
            finish();
            current_ = { time / minute, 0, 0 };
            end_ = (current_.minute + 1) * minute;
        }
        ++current_.requests;
        current_.refused += refused ? 1 : 0;
    }

    /// Call after the last request.
    void finish()
    {
        if (current_.requests == 0) {
            return;
        }
        const bool worse = current_.refused > worst_.refused
            || (current_.refused == worst_.refused && current_.requests > worst_.requests);
        if (worse) {
            worst_ = current_;
        }
        if (keep_) {
            all_.push_back(current_);
        }
        current_ = {};
        end_ = 0;
    }

    /// With the most refusals; of several, with the most requests. No requests: there is none.
    const MinuteCount& worst() const noexcept { return worst_; }
    const std::vector<MinuteCount>& all() const noexcept { return all_; }

private:
    bool keep_;
    std::int64_t end_ = 0;  // of the current minute, in us
    MinuteCount current_;
    MinuteCount worst_;
    std::vector<MinuteCount> all_;
};

}  // namespace ratelimit::rehearse

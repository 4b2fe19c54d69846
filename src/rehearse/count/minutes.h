#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
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
    explicit Minutes(bool keep) noexcept : keep_(keep) {}

    /// `time` in microseconds since the epoch.
    void add(std::int64_t time, bool refused)
    {
        constexpr std::int64_t minute = 60'000'000;
        if (time >= end_) {
            if (!keep_ && !all_.empty()) {
                all_.assign(1, worst());
            }
            all_.push_back({ time / minute, 0, 0 });
            end_ = (time / minute + 1) * minute;
        }
        ++all_.back().requests;
        all_.back().refused += refused ? 1 : 0;
    }

    /// With the most refusals; of several, with the most requests. No requests: there is none.
    MinuteCount worst() const
    {
        const auto found = std::max_element(
            all_.begin(), all_.end(), [](const MinuteCount& left, const MinuteCount& right) {
                return std::tie(left.refused, left.requests)
                    < std::tie(right.refused, right.requests);
            });
        return found == all_.end() ? MinuteCount{} : *found;
    }
    const std::vector<MinuteCount>& all() const noexcept { return all_; }

private:
    bool keep_;
    std::int64_t end_ = 0;          // of the last minute, in us
    std::vector<MinuteCount> all_;  // unless they are kept: the worst one and the last one
};

}  // namespace ratelimit::rehearse

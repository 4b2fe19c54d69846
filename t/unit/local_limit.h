#pragma once

#include "limit/gcra.h"
#include "limit/timed_counts.h"
#include "limit/window_counts.h"

#include <cstddef>
#include <deque>
#include <limits>
#include <variant>

namespace ratelimit {

/// A queue whose room can be limited, as if memory were full.
class ScarceQueue : public std::deque<TimedCount> {
public:
    bool push_back(const TimedCount& entry)
    {
        if (size() >= room) {
            return false;
        }
        std::deque<TimedCount>::push_back(entry);
        return true;
    }
    const_iterator next() const { return begin() + static_cast<difference_type>(marked_); }
    void advance()
    {
        marked_total_ += next()->count;
        ++marked_;
    }
    const TimedCount* last_marked() const { return marked_ == 0 ? nullptr : &*(next() - 1); }
    std::int64_t marked_total() const { return marked_total_; }
    void pop_front()
    {
        if (marked_ > 0) {
            marked_total_ -= front().count;
            --marked_;
        }
        std::deque<TimedCount>::pop_front();
    }
    void reduce(const_iterator place, std::int64_t count)
    {
        (*this)[static_cast<std::size_t>(place - begin())].count -= count;
    }
    const_iterator begin() const { return cbegin(); }
    const_iterator end() const { return cend(); }

    std::size_t room = std::numeric_limits<std::size_t>::max();

private:
    std::size_t marked_ = 0;  // from the front
    std::int64_t marked_total_ = 0;
};

/// One key's state in memory, under any of the algorithms.
struct LocalLimit {
    using Check = std::variant<GcraCheck, WindowCheck, TimedCheck<ScarceQueue>>;

    Check check(const Policy& policy, std::int64_t now, std::int64_t cost)
    {
        const microseconds time{ now };
        switch (policy.algorithm) {
        case Algorithm::fixed_window:
        case Algorithm::sliding_window_counter:
            return Check(std::in_place_type<WindowCheck>, window_counts, policy, time, cost);
        case Algorithm::sliding_window_log:
        case Algorithm::sliding_window_buckets:
        case Algorithm::concurrency:
            return Check(
                std::in_place_type<TimedCheck<ScarceQueue>>, entries, total, policy, time, cost);
        default:
            return Check(std::in_place_type<GcraCheck>, arrival_time, policy, time, cost);
        }
    }

    ArrivalTime arrival_time;
    WindowCounts window_counts;
    ScarceQueue entries;
    std::int64_t total = 0;
};

inline bool granted(const LocalLimit::Check& check)
{
    return std::visit([](const auto& one) { return one.granted(); }, check);
}
inline Verdict commit(LocalLimit::Check& check, bool take)
{
    return std::visit([&](auto& one) { return one.commit(take); }, check);
}
inline std::int64_t life(const LocalLimit::Check& check)
{
    return std::visit([](const auto& one) { return one.life().count(); }, check);
}

}  // namespace ratelimit

#pragma once

#include "limit/decision.h"
#include "limit/policy.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ratelimit {

/// So many requests passed at one time: in the microsecond of a log's entry, or in a bucket.
struct TimedCount {
    std::int64_t time = 0;   // us since the epoch; of a bucket: its start
    std::int64_t count = 0;  // at least 1

    friend bool operator==(const TimedCount&, const TimedCount&) = default;
};

/// Where sliding_window_log and sliding_window_buckets keep a key's entries, the oldest in front:
/// - `empty()`; `front()` and `pop_front()`, the oldest; `back()`, the newest, also to write to;
/// - `push_back(entry)` makes a newer one; false: there is no memory, and nothing has changed;
/// - `begin()` and `end()`, to walk from the oldest to the newest;
/// - `next()`, the oldest that has not been passed, and `pass()`, which passes it; `last_passed()`,
///   the newest that has been, or null; `passed_total()`, the sum of the counts of those that have.
/// None of them may throw.
template <class Queue>
concept TimedCountQueue = requires(Queue& queue, const TimedCount& entry)
{
    bool{ queue.empty() };
    queue.front() == entry;
    queue.back() == entry;
    queue.back() = entry;
    queue.pop_front();
    bool{ queue.push_back(entry) };
    bool{ queue.begin() != queue.end() };
    *++queue.begin() == entry;
    *++queue.next() == entry;
    queue.pass();
    *queue.last_passed() == entry;
    std::int64_t{ queue.passed_total() };
};

/// One check of a limit in this process's own memory, in two steps, so that several limits can be
/// decided before any of them counts. It answers as lua/sliding_window_log.lua and
/// lua/sliding_window_buckets.lua do.
///
/// A request is remembered at its time ("sliding window log") or at the start of its bucket, and
/// counts for as long as that is in the window. The log is the same as buckets of 1 us.
///
/// Invariants of the state: times grow from front to back, and `total` is the sum of all counts.
template <TimedCountQueue Queue>
class TimedCheck {
public:
    /// Looks, and changes nothing: entries that have left the window stay until a request is
    /// counted, since a clock that steps back sees them again. Only the queue notes which it has
    /// passed, so that no two checks walk past them. `now` is a time since the epoch; a cost of 0
    /// always passes.
    TimedCheck(
        Queue& entries, std::int64_t& total, const Policy& policy, microseconds now,
        std::int64_t cost) noexcept;

    /// Whether a request of this cost passes.
    bool granted() const noexcept { return granted_; }

    /// Counts the request if `take`, and if it is granted and costs anything; the answer after
    /// that. To be called once.
    Verdict commit(bool take) noexcept;

    /// After commit: there was no memory even for one entry, and the answer is without the request.
    /// With less memory than entries the newest of them become one, that of the last.
    bool out_of_memory() const noexcept { return out_of_memory_; }

    /// After commit: how long from `now` the state matters; zero: it equals an empty state.
    microseconds life() const noexcept;

private:
    bool has_left(const TimedCount& entry, std::int64_t at) const noexcept
    {
        return entry.time <= at - window_;
    }
    std::int64_t bucket() const noexcept { return now_ - now_ % width_; }
    void look() noexcept;
    void find_live() noexcept;
    void pop_left() noexcept;
    void take_over() noexcept;
    void take() noexcept;
    microseconds retry_after() const noexcept;

    Queue& entries_;
    std::int64_t& total_;
    std::int64_t asked_;  // us since the epoch
    std::int64_t quota_;
    std::int64_t window_;  // us
    std::int64_t width_;   // us
    std::int64_t cost_;
    std::int64_t now_;         // decided at: the newest entry's time, where the clock is behind it
    std::int64_t seen_at_;     // what is in the window is told by this time
    std::int64_t newest_ = 0;  // time of the newest entry, as this check sees it
    std::int64_t live_ = 0;    // requests in the window
    decltype(std::declval<Queue&>().end()) oldest_;  // of them; the end: there are none
    bool moved_ = false;  // all live entries are to take now's time: the clock ran backwards
    bool granted_ = false;
    bool out_of_memory_ = false;
};

template <TimedCountQueue Queue>
TimedCheck<Queue>::TimedCheck(
    Queue& entries, std::int64_t& total, const Policy& policy, microseconds now,
    std::int64_t cost) noexcept
    : entries_(entries),
      total_(total),
      asked_(now.count()),
      quota_(policy.rate.quota),
      window_(policy.rate.window.count()),
      width_(
          policy.algorithm == Algorithm::sliding_window_buckets ? policy.bucket_width().count()
                                                                : 1),
      cost_(cost),
      now_(asked_),
      seen_at_(asked_),
      oldest_(entries.end())
{
    look();
    // Not live + cost: an absurd cost must not overflow.
    granted_ = cost == 0 || cost <= quota_ - live_;
}

template <TimedCountQueue Queue>
void TimedCheck<Queue>::look() noexcept
{
    if (entries_.empty()) {
        return;
    }
    newest_ = entries_.back().time;
    if (newest_ > asked_) {
        seen_at_ = newest_;
        moved_ = newest_ - asked_ > window_;
        now_ = moved_ ? asked_ : newest_;
    }
    if (has_left(entries_.back(), seen_at_)) {
        return;  // all have: no need to walk
    }
    find_live();
    if (moved_) {
        newest_ = bucket();
    }
}

/// The newest has not left.
template <TimedCountQueue Queue>
void TimedCheck<Queue>::find_live() noexcept
{
    live_ = total_;
    const TimedCount* passed = entries_.last_passed();
    if (passed == nullptr || has_left(*passed, seen_at_)) {
        while (has_left(*entries_.next(), seen_at_)) {
            entries_.pass();
        }
        live_ -= entries_.passed_total();
        oldest_ = entries_.next();
        return;
    }
    // The clock has stepped back since.
    for (oldest_ = entries_.begin(); has_left(*oldest_, seen_at_); ++oldest_) {
        live_ -= (*oldest_).count;
    }
}

template <TimedCountQueue Queue>
Verdict TimedCheck<Queue>::commit(bool take_it) noexcept
{
    Verdict answer;
    answer.granted = granted_;
    if (!granted_) {
        answer.retry_after.reset();
        if (cost_ <= quota_) {
            answer.retry_after = retry_after();
        }
    }
    if (moved_ && cost_ > 0) {
        take_over();
    }
    if (take_it && granted_ && cost_ > 0) {
        take();
    }
    answer.remaining = std::max<std::int64_t>(0, quota_ - live_);
    answer.reset = microseconds{ live_ > 0 ? newest_ + window_ - asked_ : 0 };
    return answer;
}

template <TimedCountQueue Queue>
void TimedCheck<Queue>::pop_left() noexcept
{
    while (!entries_.empty() && has_left(entries_.front(), seen_at_)) {
        total_ -= entries_.front().count;
        entries_.pop_front();
    }
}

/// The live entries become one. It is the last of them: to write it needs no memory.
template <TimedCountQueue Queue>
void TimedCheck<Queue>::take_over() noexcept
{
    const TimedCount all{ newest_, live_ };
    while (entries_.front().time < entries_.back().time) {
        entries_.pop_front();
    }
    entries_.back() = all;
    total_ = live_;
    seen_at_ = now_;
}

template <TimedCountQueue Queue>
void TimedCheck<Queue>::take() noexcept
{
    pop_left();
    if (!entries_.empty() && entries_.back().time >= bucket()) {
        // The newest bucket is this one, or ahead.
        entries_.back().count += cost_;
    } else if (entries_.push_back({ bucket(), cost_ })) {
        newest_ = bucket();
    } else if (!entries_.empty()) {
        // The newest comes along: it counts for longer than it should, and nothing too short.
        entries_.back() = { bucket(), entries_.back().count + cost_ };
        newest_ = bucket();
    } else {
        out_of_memory_ = true;
        return;
    }
    total_ += cost_;
    live_ += cost_;
}

/// Of a refused request that may pass one day: when as many of the oldest as are in its way leave.
template <TimedCountQueue Queue>
microseconds TimedCheck<Queue>::retry_after() const noexcept
{
    std::int64_t leaving = live_ + cost_ - quota_;
    std::int64_t time = newest_;
    for (auto entry = oldest_; !moved_ && leaving > 0; ++entry) {
        time = (*entry).time;
        leaving -= (*entry).count;
    }
    return microseconds{ time + window_ - asked_ };
}

template <TimedCountQueue Queue>
microseconds TimedCheck<Queue>::life() const noexcept
{
    if (entries_.empty()) {
        return microseconds{ 0 };
    }
    return microseconds{ std::max<std::int64_t>(0, entries_.back().time + window_ - asked_) };
}

}  // namespace ratelimit

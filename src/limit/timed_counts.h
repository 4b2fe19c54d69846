#pragma once

#include "limit/policy.h"
#include "limit/refund.h"
#include "limit/verdict.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ratelimit {

/// How many requests passed at one time: in one microsecond (log) or in one bucket.
struct TimedCount {
    std::int64_t time = 0;   // us, by the clock that decides; for a bucket: its start
    std::int64_t count = 0;  // 0: all of it was refunded, unless it was the newest

    friend bool operator==(const TimedCount&, const TimedCount&) = default;
};

/// A queue with the entries of one key for sliding_window_log and sliding_window_buckets:
/// - `empty()`; `front()` and `pop_front()`: the oldest entry; `back()`: the newest one, writable;
///   `pop_back()` removes it if it is not passed;
/// - `push_back(entry)` appends a newer entry; false: out of memory, and nothing has changed;
/// - `begin()` and `end()`: iterators from the oldest to the newest entry;
/// - entries can be marked as passed, the oldest first: `next()` is the oldest that is not passed,
///   `advance()` marks it, `last_marked()` is the newest that is passed (null: none), and
///   `marked_total()` is the sum of the counts of all that are passed.
/// - `reduce(place, count)` subtracts from the count of an entry that is not passed.
/// No function may throw.
template <class Queue>
concept TimedCountQueue = requires(Queue& queue, const TimedCount& entry)
{
    bool{ queue.empty() };
    queue.front() == entry;
    queue.back() == entry;
    queue.back() = entry;
    queue.pop_front();
    queue.pop_back();
    bool{ queue.push_back(entry) };
    bool{ queue.begin() != queue.end() };
    *++queue.begin() == entry;
    *++queue.next() == entry;
    queue.advance();
    *queue.last_marked() == entry;
    std::int64_t{ queue.marked_total() };
    queue.reduce(queue.next(), std::int64_t{ 1 });
};

/// One check of a limit whose state is in this process's memory, in two steps (constructor and
/// commit), so that several limits can be checked before any of them counts. The verdicts are those
/// of lua/sliding_window_log.lua, lua/sliding_window_buckets.lua and lua/concurrency.lua.
///
/// An entry has the time of a request ("sliding window log") or the start of its bucket, and counts
/// for Policy::counted_for from then on: a request for the window, and up to a bucket longer.
///
/// Invariants of the state: times grow from front to back, and `total` is the sum of all counts.
template <TimedCountQueue Queue>
class TimedCheck {
public:
    /// Changes neither entries nor total: entries that have left the window stay until a request is
    /// counted, because a clock that steps back needs them again. They are marked as passed, so
    /// that later checks do not walk over them. `now`: by the clock that decides. A cost of 0
    /// always passes.
    TimedCheck(
        Queue& entries, std::int64_t& total, const Policy& policy, microseconds now,
        std::int64_t cost) noexcept;

    /// Whether a request of this cost passes.
    bool granted() const noexcept { return granted_; }

    /// The verdict if the request is not counted; changes nothing.
    Verdict peek() const noexcept;

    /// Counts the request if `take`, and if it is granted and its cost is not 0. Returns the
    /// verdict after that. Call once.
    Verdict commit(bool take) noexcept;

    /// Instead of commit: counts the cost even if the count then exceeds the quota.
    void charge() noexcept
    {
        if (cost_ == 0) {
            return;
        }
        if (moved_) {
            take_over();
        }
        take();
    }

    /// After commit: whether there was no memory for the only entry, so that the request was not
    /// counted. If there are other entries, the request is added to the newest one instead.
    bool out_of_memory() const noexcept { return out_of_memory_; }

    /// After commit or charge: how long after `now` the state equals an empty one; zero: it does
    /// now.
    microseconds life() const noexcept;

private:
    bool has_left(const TimedCount& entry, std::int64_t at) const noexcept
    {
        return entry.time <= at - window_;
    }
    std::int64_t bucket() const noexcept { return now_ - now_ % width_; }
    void read() noexcept;
    void find_live() noexcept;
    void pop_left() noexcept;
    void take_over() noexcept;
    void take() noexcept;
    microseconds retry_after() const noexcept;

    Queue& entries_;
    std::int64_t& total_;
    std::int64_t request_time_;  // `now`, in us
    std::int64_t quota_;
    std::int64_t window_;  // us: how long an entry counts
    std::int64_t width_;   // us
    bool held_;            // a request ends at any time, so there is no time to wait for
    std::int64_t cost_;
    std::int64_t now_;         // time to count at: the newest entry's, if the clock is behind it
    std::int64_t seen_at_;     // end of the window that decides which entries are live
    std::int64_t newest_ = 0;  // time of the newest entry, as this check sees it
    std::int64_t live_ = 0;    // requests in the window
    decltype(std::declval<Queue&>().end()) oldest_;  // the oldest live entry; the end: none is live
    bool moved_ = false;  // the clock ran backwards: all live entries get the time now
    bool granted_ = false;
    bool out_of_memory_ = false;
};

template <TimedCountQueue Queue>
TimedCheck<Queue>::TimedCheck(
    Queue& entries, std::int64_t& total, const Policy& policy, microseconds now,
    std::int64_t cost) noexcept
    : entries_(entries),
      total_(total),
      request_time_(now.count()),
      quota_(policy.limit()),
      window_(policy.counted_for().count()),
      width_(traits_of(policy.algorithm).logs ? 1 : policy.bucket_width().count()),
      held_(counts_at_one_time(policy.algorithm)),
      cost_(cost),
      now_(request_time_),
      seen_at_(request_time_),
      oldest_(entries.end())
{
    read();
    // Not live + cost, which could overflow.
    granted_ = cost == 0 || cost <= quota_ - live_;
}

template <TimedCountQueue Queue>
void TimedCheck<Queue>::read() noexcept
{
    if (entries_.empty()) {
        return;
    }
    newest_ = entries_.back().time;
    if (newest_ > request_time_) {
        seen_at_ = newest_;
        moved_ = newest_ - request_time_ > window_;
        now_ = moved_ ? request_time_ : newest_;
    }
    if (has_left(entries_.back(), seen_at_)) {
        return;  // no entry is live
    }
    find_live();
    if (moved_) {
        newest_ = bucket();
    }
}

/// Sets live_ and oldest_. The newest entry must be live.
template <TimedCountQueue Queue>
void TimedCheck<Queue>::find_live() noexcept
{
    live_ = total_;
    const TimedCount* passed = entries_.last_marked();
    if (passed == nullptr || has_left(*passed, seen_at_)) {
        while (has_left(*entries_.next(), seen_at_)) {
            entries_.advance();
        }
        live_ -= entries_.marked_total();
        oldest_ = entries_.next();
        return;
    }
    // The clock has stepped back: entries that were passed are live again.
    for (oldest_ = entries_.begin(); has_left(*oldest_, seen_at_); ++oldest_) {
        live_ -= (*oldest_).count;
    }
}

template <TimedCountQueue Queue>
Verdict TimedCheck<Queue>::peek() const noexcept
{
    Verdict answer;
    answer.granted = granted_;
    if (!granted_) {
        answer.retry_after = cost_ <= quota_ ? std::optional(retry_after()) : std::nullopt;
    }
    answer.remaining = std::max<std::int64_t>(0, quota_ - live_);
    answer.reset = microseconds{ live_ > 0 ? newest_ + window_ - request_time_ : 0 };
    return answer;
}

template <TimedCountQueue Queue>
Verdict TimedCheck<Queue>::commit(bool take_it) noexcept
{
    const Verdict before = peek();
    if (moved_ && cost_ > 0) {
        take_over();
    }
    if (!take_it || !granted_ || cost_ == 0) {
        return before;
    }
    take();
    return peek();
}

template <TimedCountQueue Queue>
void TimedCheck<Queue>::pop_left() noexcept
{
    while (!entries_.empty() && has_left(entries_.front(), seen_at_)) {
        total_ -= entries_.front().count;
        entries_.pop_front();
    }
}

/// Merges the live entries into the newest one, which needs no memory.
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
        // The newest bucket is the current one, or ahead of it.
        entries_.back().count += cost_;
    } else if (entries_.push_back({ bucket(), cost_ })) {
        newest_ = bucket();
    } else if (!entries_.empty()) {
        // Out of memory: the newest entry is merged with this one. So its requests count longer
        // than they should, and none counts too short.
        entries_.back() = { bucket(), entries_.back().count + cost_ };
        newest_ = bucket();
    } else {
        out_of_memory_ = true;
        return;
    }
    total_ += cost_;
    live_ += cost_;
}

/// For a refused request whose cost is at most the quota: until enough of the oldest entries leave.
template <TimedCountQueue Queue>
microseconds TimedCheck<Queue>::retry_after() const noexcept
{
    if (held_) {
        return std::chrono::seconds{ 1 };
    }
    std::int64_t leaving = live_ + cost_ - quota_;
    std::int64_t time = newest_;
    for (auto entry = oldest_; !moved_ && leaving > 0; ++entry) {
        time = (*entry).time;
        leaving -= (*entry).count;
    }
    return microseconds{ time + window_ - request_time_ };
}

template <TimedCountQueue Queue>
microseconds TimedCheck<Queue>::life() const noexcept
{
    if (entries_.empty()) {
        return microseconds{ 0 };
    }
    return microseconds{ std::max<std::int64_t>(
        0, entries_.back().time + window_ - request_time_) };
}

/// Subtracts a cost from the entry in which it was counted, unless that is passed. The reset of the
/// check tells its time, which is later than the check if the newest entry was. Of entries of count
/// 0 only the newest are removed: the reset is computed from the newest entry.
template <TimedCountQueue Queue>
void refund(Queue& entries, std::int64_t& total, const Policy& policy, const Refund& taken) noexcept
{
    const std::int64_t time = (taken.taken_at + taken.reset - policy.counted_for()).count();
    auto entry = entries.next();
    while (entry != entries.end() && (*entry).time < time) {
        ++entry;
    }
    if (entry != entries.end() && (*entry).time == time) {
        // The key was freed, and this was counted later. lua/sliding_window_buckets.lua does the
        // same.
        if (traits_of(policy.algorithm).precision && (*entry).count < taken.cost) {
            return;
        }
        const std::int64_t count = std::min((*entry).count, taken.cost);
        entries.reduce(entry, count);
        total -= count;
    }
    while (!entries.empty() && entries.back().count == 0
           && entries.last_marked() != &entries.back()) {
        entries.pop_back();
    }
}

}  // namespace ratelimit

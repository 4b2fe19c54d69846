#pragma once

#include "limit/gcra.h"
#include "limit/timed_counts.h"
#include "limit/window_counts.h"
#include "rehearse/count/units_in_flight.h"

#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace ratelimit::rehearse {

/// A TimedCountQueue in one array.
class TimedArray {
public:
    using Iterator = std::vector<TimedCount>::const_iterator;

    bool empty() const noexcept { return first_ == entries_.size(); }
    const TimedCount& front() const noexcept { return entries_[first_]; }
    TimedCount& back() noexcept { return entries_.back(); }
    bool push_back(const TimedCount& entry)
    {
        if (first_ > entries_.size() / 2) {
            entries_.erase(entries_.begin(), begin_at(first_));
            marked_ -= first_;
            first_ = 0;
        }
        entries_.push_back(entry);
        return true;
    }
    void pop_front() noexcept
    {
        if (marked_ > first_) {
            marked_total_ -= front().count;
        } else {
            ++marked_;
        }
        ++first_;
        if (empty()) {
            entries_.clear();
            first_ = 0;
            marked_ = 0;
        }
    }
    void pop_back() noexcept { entries_.pop_back(); }
    Iterator begin() const noexcept { return begin_at(first_); }
    Iterator end() const noexcept { return entries_.end(); }

    Iterator next() const noexcept { return begin_at(marked_); }
    void advance() noexcept
    {
        marked_total_ += entries_[marked_].count;
        ++marked_;
    }
    const TimedCount* last_marked() const noexcept
    {
        return marked_ > first_ ? &entries_[marked_ - 1] : nullptr;
    }
    std::int64_t marked_total() const noexcept { return marked_total_; }
    void reduce(Iterator place, std::int64_t count) noexcept
    {
        entries_[static_cast<std::size_t>(place - entries_.begin())].count -= count;
    }

private:
    Iterator begin_at(std::size_t index) const noexcept
    {
        return entries_.begin() + static_cast<std::ptrdiff_t>(index);
    }

    std::vector<TimedCount> entries_;
    std::size_t first_ = 0;   // those before it were popped
    std::size_t marked_ = 0;  // those before it have been passed; at least first_
    std::int64_t marked_total_ = 0;
};

struct TimedState {
    TimedArray entries;
    std::int64_t total = 0;
};

/// A value on the heap, which is copied with its owner.
template <class Value>
class Boxed {
public:
    Boxed() : value_(std::make_unique<Value>()) {}
    Boxed(const Boxed& other) : value_(std::make_unique<Value>(*other.value_)) {}
    Boxed(Boxed&&) noexcept = default;
    Boxed& operator=(const Boxed&) = delete;
    Boxed& operator=(Boxed&&) noexcept = default;
    ~Boxed() = default;

    Value& operator*() const noexcept { return *value_; }

private:
    std::unique_ptr<Value> value_;
};

/// The state of a key, by the way in which its zone counts.
using KeyState = std::variant<ArrivalTime, WindowCounts, Boxed<TimedState>, Boxed<UnitsInFlight>>;

inline KeyState empty_state(Algorithm algorithm)
{
    if (counts_at_one_time(algorithm)) {
        return Boxed<UnitsInFlight>();
    }
    switch (traits_of(algorithm).state) {
    case StateKind::arrival_time:
        return ArrivalTime{};
    case StateKind::window_counts:
        return WindowCounts{};
    case StateKind::timed_counts:
        break;
    }
    return Boxed<TimedState>();
}

/// A check on a key's state: for a rate, that of src/limit which the module uses in a node's
/// memory.
class KeyCheck {
public:
    /// `end`: when the request ends, since the epoch; only concurrency= needs it.
    KeyCheck(
        KeyState& state, const Policy& policy, microseconds now, std::int64_t cost,
        microseconds end)
        : check_(make(state, policy, now, cost, end))
    {
    }

    bool granted() const noexcept
    {
        return std::visit([](const auto& check) { return check.granted(); }, check_);
    }
    Verdict commit(bool take) noexcept
    {
        return std::visit([take](auto& check) { return check.commit(take); }, check_);
    }
    void charge() noexcept
    {
        std::visit([](auto& check) { check.charge(); }, check_);
    }
    microseconds life() const noexcept
    {
        return std::visit([](const auto& check) { return check.life(); }, check_);
    }

private:
    using Check = std::variant<GcraCheck, WindowCheck, TimedCheck<TimedArray>, InFlightCheck>;

    static Check make(
        KeyState& state, const Policy& policy, microseconds now, std::int64_t cost,
        microseconds end)
    {
        if (auto* arrival = std::get_if<ArrivalTime>(&state)) {
            return Check(std::in_place_type<GcraCheck>, *arrival, policy, now, cost);
        }
        if (auto* counts = std::get_if<WindowCounts>(&state)) {
            return Check(std::in_place_type<WindowCheck>, *counts, policy, now, cost);
        }
        if (auto* in_flight = std::get_if<Boxed<UnitsInFlight>>(&state)) {
            return Check(std::in_place_type<InFlightCheck>, **in_flight, policy, now, cost, end);
        }
        TimedState& timed = *std::get<Boxed<TimedState>>(state);
        return Check(
            std::in_place_type<TimedCheck<TimedArray>>, timed.entries, timed.total, policy, now,
            cost);
    }

    Check check_;
};

/// Subtracts a counted cost, as src/limit's refunds do. Not of concurrency=.
inline void refund_state(
    KeyState& state, const Policy& policy, microseconds now, const Refund& taken) noexcept
{
    if (auto* arrival = std::get_if<ArrivalTime>(&state)) {
        refund(*arrival, policy, now, taken);
    } else if (auto* counts = std::get_if<WindowCounts>(&state)) {
        refund(*counts, policy, now, taken);
    } else {
        TimedState& timed = *std::get<Boxed<TimedState>>(state);
        refund(timed.entries, timed.total, policy, taken);
    }
}

}  // namespace ratelimit::rehearse

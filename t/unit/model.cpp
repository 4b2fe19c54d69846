#include "model.h"

#include <algorithm>
#include <deque>
#include <vector>

namespace ratelimit {

namespace {

using Time = Model::Time;

/// The first time, not before `from`, at which the condition holds; it must hold ever after.
template <class Condition>
Time first_time(Time from, Condition&& holds)
{
    Time to = from + 1;
    while (!holds(to)) {
        to *= 2;
    }
    while (from < to) {
        const Time middle = from + (to - from) / 2;
        if (holds(middle)) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    return from;
}

Time window_of(const Policy& policy)
{
    return policy.rate.window.count();
}

Time counted_for(const Policy& policy)
{
    return policy.counted_for().count();
}

class FixedWindow final : public Model {
    Time adjusted(const Policy& policy, Time now, bool writes) override
    {
        const Time window = window_of(policy);
        shown_start_ = start_;
        if (count_ > 0 && start_ > now) {
            if (start_ - now <= window) {
                now = start_;
            } else {
                shown_start_ = now / window * window;
                start_ = writes ? shown_start_ : start_;
            }
        }
        asked_in_ = now / window;
        return now;
    }
    std::int64_t used(const Policy& policy, Time now) const override
    {
        return now / window_of(policy) * window_of(policy) == shown_start_ ? count_ : 0;
    }
    bool whole(const Policy& policy, Time now) const override
    {
        // The end of the window, even of a window without requests.
        return now / window_of(policy) != asked_in_;
    }
    void take(const Policy& policy, Time now, std::int64_t cost) override
    {
        count_ = used(policy, now) + cost;
        start_ = shown_start_ = now / window_of(policy) * window_of(policy);
    }

    Time start_ = 0;
    std::int64_t count_ = 0;
    Time shown_start_ = 0;  // as this decision sees it
    Time asked_in_ = 0;     // number of the window of the request
};

class SlidingCounter final : public Model {
    Time adjusted(const Policy& policy, Time now, bool writes) override
    {
        const Time window = window_of(policy);
        kept_ = counts_;
        if (counts_.empty() || counts_.rbegin()->first <= now) {
            return now;
        }
        const Time start = counts_.rbegin()->first;
        if (start - now <= window) {
            return start;
        }
        std::int64_t all = 0;
        for (const auto& [when, count] : counts_) {
            all += when >= start - window ? count : 0;
        }
        kept_ = { { now / window * window, all } };
        if (writes) {
            counts_ = kept_;
        }
        return now;
    }
    std::int64_t used(const Policy& policy, Time now) const override
    {
        const Time window = window_of(policy);
        const Time start = now / window * window;
        const auto in_sight =
            static_cast<__int128>(count(start - window)) * (window - (now - start));
        return static_cast<std::int64_t>(in_sight / window) + count(start);
    }
    void take(const Policy& policy, Time now, std::int64_t cost) override
    {
        counts_ = kept_;
        const Time start = now / window_of(policy) * window_of(policy);
        counts_[start] += cost;
        std::erase_if(
            counts_, [&](const auto& entry) { return entry.first < start - window_of(policy); });
        kept_ = counts_;
    }
    std::int64_t count(Time start) const
    {
        const auto found = kept_.find(start);
        return found == kept_.end() ? 0 : found->second;
    }

    std::map<Time, std::int64_t> counts_;  // by start of the window
    std::map<Time, std::int64_t> kept_;    // as this decision sees them
};

/// Both logs: one entry for each passed request, at its time or its bucket's start.
class Log : public Model {
protected:
    virtual Time stamp(const Policy&, Time now) const { return now; }

private:
    Time adjusted(const Policy& policy, Time now, bool writes) override
    {
        seen_ = times_;
        if (times_.empty() || times_.back() <= now) {
            return now;
        }
        const Time newest = times_.back();
        if (newest - now <= counted_for(policy)) {
            return newest;
        }
        std::deque<Time> moved;
        for (const Time time : times_) {
            if (time > newest - counted_for(policy)) {
                moved.push_back(stamp(policy, now));
            }
        }
        seen_ = moved;
        if (writes) {
            times_ = moved;
        }
        return now;
    }
    std::int64_t used(const Policy& policy, Time now) const override
    {
        std::int64_t live = 0;
        for (auto time = seen_.rbegin(); time != seen_.rend(); ++time) {
            if (*time <= now - counted_for(policy)) {
                break;
            }
            ++live;
        }
        return live;
    }
    void take(const Policy& policy, Time now, std::int64_t cost) override
    {
        times_ = seen_;
        while (!times_.empty() && times_.front() <= now - counted_for(policy)) {
            times_.pop_front();
        }
        Time time = stamp(policy, now);
        if (!times_.empty()) {
            time = std::max(time, times_.back());
        }
        times_.insert(times_.end(), static_cast<std::size_t>(cost), time);
        seen_ = times_;
    }

    std::deque<Time> times_;
    std::deque<Time> seen_;
};

class Buckets : public Log {
    Time stamp(const Policy& policy, Time now) const override
    {
        const Time width = policy.bucket_width().count();
        return now / width * width;
    }
};

/// Others may end at any time.
class Concurrency final : public Buckets {
    microseconds retry(const Policy&, Time, std::int64_t) const override
    {
        return std::chrono::seconds{ 1 };
    }
};

/// The bucket holds `level` units at the time `as_of`; a request is `window` units, and `quota`
/// units drain each microsecond.
class Bucket final : public Model {
    Time adjusted(const Policy& policy, Time now, bool writes) override
    {
        const Time behind = latest_ - now;
        const bool moved = behind > window_of(policy);
        const Time as_of = moved ? as_of_ - behind : as_of_;
        seen_latest_ = moved ? now : std::max(latest_, now);
        seen_level_ = std::max<__int128>(0, level_ - static_cast<__int128>(now - as_of) * units_);
        seen_at_ = now;
        seen_quota_ = policy.rate.quota;
        if (units_ != policy.rate.quota) {
            // Whole microseconds are kept; the fraction of one is in other units.
            const __int128 whole_us = seen_level_ / units_;
            const __int128 rest = seen_level_ % units_;
            seen_level_ =
                whole_us * policy.rate.quota + std::min<__int128>(rest, policy.rate.quota - 1);
        }
        if (moved && writes) {
            keep();
        }
        return now;
    }
    __int128 level_at(Time now) const
    {
        return std::max<__int128>(
            0, seen_level_ - static_cast<__int128>(now - seen_at_) * seen_quota_);
    }
    std::int64_t used(const Policy&, Time) const override { return 0; }
    bool fits(const Policy& policy, Time now, std::int64_t cost) const override
    {
        const __int128 window = window_of(policy);
        return level_at(now) + (cost + policy.reserve) * window <= policy.whole() * window;
    }
    std::int64_t remaining(const Policy& policy, Time now) const override
    {
        std::int64_t count = 0;
        for (std::int64_t step = std::int64_t{ 1 } << 40; step > 0; step /= 2) {
            count += fits(policy, now, count + step) ? step : 0;
        }
        return count;
    }
    bool whole(const Policy&, Time now) const override { return level_at(now) == 0; }
    void take(const Policy& policy, Time now, std::int64_t cost) override
    {
        seen_level_ = level_at(now) + static_cast<__int128>(cost) * window_of(policy);
        seen_at_ = now;
        keep();
    }
    void keep()
    {
        level_ = seen_level_;
        as_of_ = seen_at_;
        units_ = seen_quota_;
        latest_ = seen_latest_;
    }

    __int128 level_ = 0, seen_level_ = 0;
    Time as_of_ = 0, seen_at_ = 0;
    Time latest_ = 0, seen_latest_ = 0;  // when a request was counted
    std::int64_t units_ = 1, seen_quota_ = 1;
};

}  // namespace

std::unique_ptr<Model> Model::of(Algorithm algorithm)
{
    switch (algorithm) {
    case Algorithm::fixed_window:
        return std::make_unique<FixedWindow>();
    case Algorithm::sliding_window_counter:
        return std::make_unique<SlidingCounter>();
    case Algorithm::sliding_window_log:
        return std::make_unique<Log>();
    case Algorithm::sliding_window_buckets:
        return std::make_unique<Buckets>();
    case Algorithm::concurrency:
        return std::make_unique<Concurrency>();
    default:
        return std::make_unique<Bucket>();
    }
}

bool Model::grants(const Policy& policy, Time& now, std::int64_t cost)
{
    asked_ = now;
    const bool blocked = now < block_.ends && (now >= block_.begins || now < block_.refused);
    rest_ = blocked ? std::min(block_.ends - now, policy.block.count()) : 0;
    now = adjusted(policy, now, cost > 0);
    allowed_ = cost == 0 || fits(policy, now, cost);
    return allowed_ && (cost == 0 || rest_ == 0);
}

bool Model::begin_block(const Policy& policy, Time now, Time refused, Time begins)
{
    const Block block{ refused, begins, begins + policy.block.count() };
    const bool stands = now < block_.ends;
    const bool overtaken = stands && refused <= block_.refused && block_.refused <= now;
    if (block.ends <= now || (stands && block_.ends <= block.ends) || overtaken
        || refused <= spared_) {
        return false;
    }
    block_ = block;
    return !stands;
}

void Model::spare(Time now, Time counted, Time lasts)
{
    if (now >= block_.ends || block_.refused >= counted) {
        block_ = {};
    }
    spared_ = std::max(spared_, now + lasts);
}

microseconds Model::retry(const Policy& policy, Time now, std::int64_t cost) const
{
    return microseconds{ first_time(
        1, [&](Time later) { return fits(policy, std::max(now, asked_ + later), cost); }) };
}

Verdict Model::commit(const Policy& policy, Time now, std::int64_t cost, bool granted, bool take_it)
{
    if (take_it) {
        take(policy, now, cost);
    }
    // If the clock is behind the state, decisions are made at the state's time until the clock has
    // reached it.
    const auto decided_after = [&](Time later) { return std::max(now, asked_ + later); };
    Verdict state;
    state.granted = granted;
    state.remaining = remaining(policy, now);
    state.reset = microseconds{ first_time(
        0, [&](Time later) { return whole(policy, decided_after(later)); }) };
    if (!allowed_) {
        state.retry_after = std::nullopt;
        if (cost + policy.reserve <= policy.whole()) {
            state.retry_after = retry(policy, now, cost);
        }
    }
    apply_block(state, microseconds{ rest_ });
    return state;
}

Model::Decision Model::decide(const Policy& policy, Time now, std::int64_t cost)
{
    Decision decision;
    decision.at = now;
    const bool granted = grants(policy, decision.at, cost);
    decision.taken = granted && cost > 0;
    decision.state = commit(policy, decision.at, cost, granted, decision.taken);
    return decision;
}

Time Model::Decision::needed_for(const Policy& policy, Time now) const
{
    const Time window = window_of(policy);
    return policy.algorithm == Algorithm::sliding_window_counter
        ? at - now + 2 * window - at % window
        : state.reset.count();
}

}  // namespace ratelimit

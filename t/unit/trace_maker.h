#pragma once

#include "all_algorithms.h"
#include "check/script_call.h"
#include "model.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <sstream>
#include <string>

namespace ratelimit {

inline constexpr Model::Time second = 1'000'000;
inline constexpr Model::Time day = 86'400 * second;
inline constexpr Model::Time start_of_traces = 1'800'000'000 * second;

inline std::int64_t from_environment(const char* name, std::int64_t otherwise)
{
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoll(text);
}

inline std::string text_of(const Verdict& state)
{
    return std::string(state.granted ? "granted" : "refused") + ", remaining "
        + std::to_string(state.remaining) + ", reset " + std::to_string(state.reset.count())
        + ", retry " + (state.retry_after ? std::to_string(state.retry_after->count()) : "never")
        + (state.blocked.count() == 0 ? "" : ", blocked " + std::to_string(state.blocked.count()));
}

/// Limits that have a policy and may be shadows.
template <class Limits>
std::string text_of_limits(const Limits& limits)
{
    std::string text;
    for (const auto& limit : limits) {
        text += std::string(name_of(limit.policy.algorithm)) + " "
            + std::to_string(limit.policy.rate.quota) + "/"
            + std::to_string(limit.policy.rate.window.count()) + "us of "
            + std::to_string(limit.policy.limit())
            + (limit.policy.block.count() == 0
                   ? ""
                   : " block " + std::to_string(limit.policy.block.count()))
            + (limit.shadow ? " shadow; " : "; ");
    }
    return text;
}

/// Draws the parts of a random trace: policies, costs, and times that are often edges. TRACE_SEED
/// in the environment selects other traces.
class TraceMaker {
protected:
    using Time = Model::Time;

    template <class Element>
    Element any_of(std::initializer_list<Element> choices)
    {
        return choices.begin()[random_() % choices.size()];
    }
    std::int64_t any(std::int64_t from, std::int64_t to)
    {
        return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
    }

    /// Settles one of the requests, chosen at random, for a random cost, and removes it: charges
    /// what its check did not take, or refunds the rest, unless that is lost.
    template <class Pending, class Charge, class Refund>
    void settle_any(Pending& pending, Charge&& charge, Refund&& refund)
    {
        const auto which = pending.begin() + any(0, std::ssize(pending) - 1);
        const std::int64_t cost = any(0, 2 * which->check.cost);
        if (cost > which->check.cost) {
            charge(cost - which->check.cost);
        } else if (any(0, 4) > 0) {
            refund(*which, which->check.cost - cost);
        }
        pending.erase(which);
    }

    Policy any_policy(Algorithm algorithm)
    {
        Policy policy;
        policy.algorithm = algorithm;
        policy.rate.quota =
            any_of<std::int64_t>({ 1, 2, 3, 7, 10, any(1, 60), any(1, 1000), 997, 9973 });
        policy.rate.window = microseconds{ any_of<Time>(
            { second, 2 * second, 10 * second, 60 * second, 61 * second, any(1, 7200) * second,
              900 * second, 3600 * second, day }) };
        if (algorithm == Algorithm::token_bucket && any(0, 1) == 1) {
            policy.burst = any(1, 50);
        } else if (keeps_arrival_time(algorithm)) {
            policy.burst = any(0, 50);
            if (algorithm == Algorithm::token_bucket) {
                policy.burst.reset();
            }
        }
        if (algorithm == Algorithm::sliding_window_buckets && any(0, 3) != 0) {
            set_width(policy);
        }
        return policy;
    }
    /// A policy that may have a block.
    Policy any_blocking_policy(Algorithm algorithm)
    {
        Policy policy = any_policy(algorithm);
        const Time window = policy.rate.window.count();
        policy.block =
            microseconds{ any_of<Time>({ 0, 0, second, any(1, 100) * second, window,
                                         window / second * any(1, 3) * second, 3600 * second }) };
        return policy;
    }
    void set_width(Policy& policy)
    {
        policy.precision = microseconds{ any(1, policy.rate.window.count() / second) * second };
    }

    std::int64_t any_cost(const Policy& policy)
    {
        const auto limit = policy.limit();
        const auto most = std::max<std::int64_t>(1, limit);
        return any_of<std::int64_t>({ 1, 1, 1, 1, 1, 0, 2, any(1, most), limit, limit + 1 });
    }

    /// A time for the next request, often at an edge of the last verdict.
    Time any_later(const Policy& policy, Time now, const Verdict& last)
    {
        const Time window = policy.rate.window.count();
        const Time interval = std::max<Time>(1, window / policy.rate.quota);
        const Time retry = last.retry_after.value_or(microseconds{ 0 }).count();
        const Time edge = window - now % window;
        const Time steps[] = { 0,
                               0,
                               0,
                               1,
                               any(0, interval),
                               any(0, 2 * interval),
                               interval,
                               edge - 1,
                               edge,
                               edge + 1,
                               retry,
                               std::max<Time>(0, retry - 1),
                               last.reset.count(),
                               std::max<Time>(0, last.reset.count() - 1),
                               any(0, window),
                               any(0, 1) == 0 ? window : 2 * window,
                               any(0, 9) == 0 ? 5 * window : 0,
                               any(0, 9) == 0 ? -any(1, window) : 1,
                               any(0, 9) == 0 ? -any(window + 1, 9 * window) : 1,
                               any(0, 9) == 0 ? -any_of<Time>({ window - 1, window, window + 1 })
                                              : 1,
                               any(0, 9) == 0 ? -(now % window) - any(window - 1, window + 1) : 1 };
        return now + steps[random_() % std::size(steps)];
    }

    /// Another quota, burst, width and reserve, as by several locations and variables for one key.
    /// The window changes only if the state is an arrival time.
    void change_policy(Policy& policy)
    {
        policy.rate.quota = any_of<std::int64_t>({ any(1, 60), any(1, 60), 9973 });
        if (keeps_arrival_time(policy.algorithm) && any(0, 1) == 0) {
            policy.rate.window =
                microseconds{ any_of<Time>({ second, any(1, 100) * second, 3600 * second }) };
        }
        if (policy.burst) {
            policy.burst = any(1, 30);
        }
        // Not the width, as not the window: only a reload changes for how long buckets count.
        const std::int64_t whole = policy.whole();
        policy.reserve = any_of<std::int64_t>({ 0, 0, 1, any(0, whole), whole - 1, whole });
    }

    /// The policy changes in one of this many requests: from every request to hardly any.
    std::int64_t any_rarity() { return any_of<std::int64_t>({ 1, 2, 5, 40 }); }

    std::string where(int trace, int step, const LimitCheck& check) const
    {
        const Policy& policy = check.policy;
        std::ostringstream text;
        text << "TRACE_SEED " << seed_ << ", trace " << trace << ", step " << step << ": "
             << name_of(policy.algorithm) << ' ' << policy.rate.quota << " in "
             << policy.rate.window.count() << " us, burst " << policy.burst.value_or(-1)
             << ", reserve " << policy.reserve << ", width " << policy.bucket_width().count()
             << ", block " << policy.block.count() << ", cost " << check.cost
             << (check.shadow ? ", shadow" : "") << ", at " << check.now->count();
        return text.str();
    }

    std::int64_t seed_ = from_environment("TRACE_SEED", 20);
    std::minstd_rand random_{ static_cast<std::uint_fast32_t>(seed_) };
};

}  // namespace ratelimit

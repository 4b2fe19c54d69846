// Arranging requests in one script call, without a call: a limiter that decides runs, against one
// that decides the same requests one after another.

#include "check/runs.h"
#include "limit/run_reply.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Costs = std::vector<std::int64_t>;

auto costs_of(const Costs& costs)
{
    return [&costs](std::size_t limit) { return costs[limit]; };
}

std::vector<std::int64_t> numbers(const Runs& runs)
{
    return { runs.numbers().begin(), runs.numbers().end() };
}

/// Several quotas, counted in all or in none.
class Quotas {
public:
    explicit Quotas(std::vector<std::int64_t> left) : left_(std::move(left)) {}

    std::size_t size() const { return left_.size(); }

    /// The verdict of each limit for one request.
    std::vector<Verdict> decide(const Costs& costs)
    {
        std::vector<Verdict> states;
        bool granted = true;
        for (std::size_t i = 0; i < size(); ++i) {
            granted = granted && costs[i] <= left_[i];
        }
        for (std::size_t i = 0; i < size(); ++i) {
            const bool fits = costs[i] <= left_[i];
            left_[i] -= granted ? costs[i] : 0;
            states.push_back({ fits, left_[i], {}, microseconds{ fits ? 0 : 1 } });
        }
        return states;
    }

    /// Replies as several_script returns them: for each run and limit, in this order.
    std::vector<RunReply> decide_runs(std::span<const std::int64_t> numbers)
    {
        std::vector<RunReply> replies;
        while (!numbers.empty()) {
            const Costs costs(numbers.begin() + 1, numbers.begin() + 1 + std::ssize(left_));
            std::int64_t taken = 0;
            while (taken < numbers.front() && fit(costs)) {
                decide(costs);
                ++taken;
            }
            for (std::size_t i = 0; i < size(); ++i) {
                const bool admits_next = costs[i] <= left_[i];
                replies.push_back({ taken,
                                    admits_next,
                                    false,
                                    microseconds{ 0 },
                                    left_[i],
                                    {},
                                    microseconds{ admits_next ? 0 : 1 } });
            }
            numbers = numbers.subspan(1 + size());
        }
        return replies;
    }

private:
    bool fit(const Costs& costs) const
    {
        return std::equal(costs.begin(), costs.end(), left_.begin(), std::less_equal<>{});
    }

    std::vector<std::int64_t> left_;
};

/// The verdict of each limit for the request at this position.
std::vector<Verdict> states_at(
    const Runs& runs, const std::vector<RunReply>& replies, Runs::Position at, const Costs& costs)
{
    const Policy policy{ Algorithm::fixed_window, { 1'000'000, std::chrono::hours{ 1 } }, {}, {} };
    std::vector<Verdict> states;
    for (std::size_t i = 0; i < costs.size(); ++i) {
        states.push_back(
            state_in_run(replies[runs.reply_of(at.run, i)], policy, costs[i], at.index));
    }
    return states;
}

class RunsTest : public testing::Test {
protected:
    std::int64_t any(std::int64_t least, std::int64_t most)
    {
        return std::uniform_int_distribution{ least, most }(random_);
    }

    /// Requests in order of arrival; most equal the one before.
    std::vector<Costs> any_requests(std::size_t limits)
    {
        std::vector<Costs> requests;
        for (auto left = any(1, 250); left > 0; --left) {
            Costs costs;
            for (std::size_t i = 0; i < limits; ++i) {
                costs.push_back(any(0, 3));
            }
            requests.push_back(requests.empty() || any(0, 4) == 0 ? costs : requests.back());
        }
        return requests;
    }

    std::mt19937 random_{ 20'261'122 };
    Runs runs_;
};

TEST_F(RunsTest, a_request_of_the_same_costs_makes_the_last_run_longer)
{
    const std::array<Costs, 5> requests{ Costs{ 1, 2 }, { 1, 2 }, { 1, 3 }, { 1, 2 }, { 1, 2 } };
    runs_.begin(2);
    std::vector<std::pair<std::size_t, std::int64_t>> positions;
    for (const Costs& costs : requests) {
        const auto [run, index] = runs_.add(costs_of(costs));
        positions.emplace_back(run, index);
    }
    EXPECT_EQ(numbers(runs_), (std::vector<std::int64_t>{ 2, 1, 2, 1, 1, 3, 2, 1, 2 }));
    const std::vector<std::pair<std::size_t, std::int64_t>> expected{
        { 0, 0 }, { 0, 1 }, { 1, 0 }, { 2, 0 }, { 2, 1 }
    };
    EXPECT_EQ(positions, expected);
    EXPECT_EQ(runs_.requests(), 5U);
    EXPECT_EQ(runs_.replies(), 6U);
}

TEST_F(RunsTest, after_a_hundred_runs_only_the_last_one_can_grow)
{
    runs_.begin(1);
    const Costs odd{ 1 };
    const Costs even{ 2 };
    for (std::size_t i = 0; i < Runs::most; ++i) {
        const Costs& next = i % 2 == 0 ? odd : even;
        ASSERT_TRUE(runs_.has_room_for(costs_of(next)));
        runs_.add(costs_of(next));
    }
    EXPECT_TRUE(runs_.has_room_for(costs_of(even)));
    EXPECT_FALSE(runs_.has_room_for(costs_of(odd)));
}

TEST_F(RunsTest, one_request_is_single_unless_tokens_are_leased)
{
    const Costs costs{ 5 };
    runs_.begin(1);
    runs_.add(costs_of(costs));
    EXPECT_TRUE(runs_.single());
    runs_.lease(3);
    EXPECT_FALSE(runs_.single());
    EXPECT_EQ(numbers(runs_), (std::vector<std::int64_t>{ 4, 5 }));
    EXPECT_EQ(runs_.first_leased().index, 1);
    EXPECT_EQ(runs_.requests(), 1U) << "a leased token is not a request";

    runs_.begin(1);
    runs_.add(costs_of(costs));
    runs_.add(costs_of(costs));
    EXPECT_FALSE(runs_.single());
    EXPECT_EQ(runs_.leased(), 0);
}

TEST_F(RunsTest, each_request_gets_the_verdict_of_a_call_of_its_own)
{
    for (int trace = 0; trace < 2'000; ++trace) {
        std::vector<std::int64_t> left;
        for (auto limits = any(1, 3); limits > 0; --limits) {
            left.push_back(any(0, 300));
        }
        Quotas together(left);
        Quotas one_by_one(left);
        const auto requests = any_requests(left.size());

        for (std::size_t first = 0; first < requests.size();) {
            std::vector<Runs::Position> positions;
            runs_.begin(left.size());
            std::size_t next = first;
            while (next < requests.size() && runs_.has_room_for(costs_of(requests[next]))) {
                positions.push_back(runs_.add(costs_of(requests[next++])));
            }
            const auto replies = together.decide_runs(runs_.numbers());
            ASSERT_EQ(replies.size(), runs_.replies());
            for (; first < next; ++first) {
                const Costs& costs = requests[first];
                const auto position = positions[positions.size() - (next - first)];
                ASSERT_EQ(states_at(runs_, replies, position, costs), one_by_one.decide(costs))
                    << "trace " << trace << ", request " << first;
            }
        }
    }
}

TEST_F(RunsTest, leased_tokens_have_the_verdicts_of_requests_after_the_last_one)
{
    int granted = 0;
    for (int trace = 0; trace < 2'000; ++trace) {
        const auto limits = static_cast<std::size_t>(any(1, 3));
        const std::vector<std::int64_t> left(limits, any(1, 300));
        Quotas together(left);
        Quotas one_by_one(left);
        runs_.begin(limits);
        Costs last;
        for (const Costs& costs : any_requests(limits)) {
            if (!runs_.has_room_for(costs_of(costs))) {
                break;
            }
            runs_.add(costs_of(costs));
            one_by_one.decide(costs);
            last = costs;
        }
        runs_.lease(any(1, 20));
        const auto replies = together.decide_runs(runs_.numbers());
        auto token = runs_.first_leased();
        for (std::int64_t i = 0; i < runs_.leased(); ++i, ++token.index) {
            const auto states = states_at(runs_, replies, token, last);
            ASSERT_EQ(states, one_by_one.decide(last)) << "trace " << trace << ", token " << i;
            granted += states.front().granted ? 1 : 0;
        }
    }
    EXPECT_GT(granted, 2'000);
}

}  // namespace
}  // namespace ratelimit

// concurrency= in ratelimit-rehearse: what requests hold is known by their ends. Random traces are
// decided as by the module, whose workers renew and release units in this node's memory.

#include "decision_fixture.h"
#include "limit/rate_text.h"
#include "rehearse/count/units_in_flight.h"
#include "rehearse_log.h"
#include "trace_maker.h"
#include "zone/held_requests.h"

#include <deque>
#include <queue>

namespace ratelimit {
namespace {

using rehearse::InFlightCheck;
using rehearse::UnitsInFlight;
using std::chrono::seconds;

/// A timer on the clock of this test, which fires it.
class TestTimer final : public Timer {
public:
    explicit TestTimer(std::function<void()> fired) : fired_(std::move(fired)) {}
    void start(milliseconds delay) noexcept override { due_ = the_time + delay; }
    void stop() noexcept override { due_ = microseconds::max(); }
    bool running() const noexcept override { return due_ != microseconds::max(); }
    void delay_exit(bool) noexcept override {}

    microseconds due() const noexcept { return due_; }
    void fire()
    {
        stop();
        fired_();
    }

private:
    microseconds due_ = microseconds::max();
    std::function<void()> fired_;
};

class RehearseInFlight : public testing::Test, protected TraceMaker {
protected:
    struct Limit {
        KeyedZone in;
        bool shadow = false;
        std::unique_ptr<HeldRequests> held;  // null: the limit has a rate
        TestTimer* timer = nullptr;          // of `held`
        std::uint64_t refused = 0;
        std::int64_t least_left = -1;
    };
    /// A request that runs.
    struct Running {
        Time end;
        std::shared_ptr<DecidedRequest> request;

        friend bool operator<(const Running& left, const Running& right) noexcept
        {
            return left.end > right.end;
        }
    };

    void add_limit(bool concurrency)
    {
        Limit& limit = limits_.emplace_back();
        Zone& zone = limit.in.zone;
        zone.name = "z" + std::to_string(limits_.size() - 1);
        zone.policy.algorithm = concurrency ? Algorithm::concurrency : Algorithm::fixed_window;
        zone.policy.rate = { any(1, concurrency ? 12 : 100), hold_ };
        zone.shared = &limit.in.memory.zone();
        limit.shadow = any(0, 3) == 0;
        if (concurrency) {
            limit.held = std::make_unique<HeldRequests>(
                zone, clock_of_test, [&limit](std::function<void()> fired) {
                    auto timer = std::make_unique<TestTimer>(std::move(fired));
                    limit.timer = timer.get();
                    return timer;
                });
        }
    }

    void begin()
    {
        running_ = {};
        limits_.clear();
        hold_ = any_of<Time>({ 1, 8, 60 }) * seconds{ 1 };
        the_time = microseconds{ start_of_traces + any(0, day) };
        add_limit(true);
        for (std::int64_t i = any(0, 2); i > 0; --i) {
            add_limit(any(0, 1) == 0);
        }
    }

    std::string conf_text() const
    {
        std::string zones;
        std::string limits;
        for (const Limit& limit : limits_) {
            const Zone& zone = limit.in.zone;
            const Rate& rate = zone.policy.rate;
            zones += "ratelimit_zone $k zone=" + zone.name
                + (limit.held == nullptr ? " algorithm=fixed_window rate=" + rate_text(rate)
                                         : " concurrency=" + std::to_string(rate.quota)
                           + " hold=" + std::to_string(rate.window / seconds{ 1 }) + "s")
                + ";\n";
            limits += "ratelimit zone=" + zone.name + " cost=$c" + (limit.shadow ? " shadow" : "")
                + ";\n";
        }
        return zones + limits;
    }

    /// Ends requests and fires timers up to a time, in the order of their times.
    void advance(Time to)
    {
        for (;;) {
            TestTimer* next = nullptr;
            for (const Limit& limit : limits_) {
                if (limit.timer != nullptr
                    && (next == nullptr || limit.timer->due() < next->due())) {
                    next = limit.timer;
                }
            }
            const bool ends = !running_.empty() && running_.top().end <= next->due().count();
            const Time at = ends ? running_.top().end : next->due().count();
            if (at > to) {
                break;
            }
            the_time = microseconds{ at };
            if (ends) {
                running_.pop();
            } else {
                next->fire();
            }
        }
        the_time = microseconds{ to };
    }

    static std::string seconds_text(Time time)
    {
        std::string fraction = std::to_string(time % second);
        fraction.insert(0, 6 - fraction.size(), '0');
        return std::to_string(time / second) + "." + fraction;
    }

    /// Decides a request by the module, and returns its line for the log.
    std::string request(bool& passes)
    {
        const std::string key = "key" + std::to_string(any(1, 3));
        const std::int64_t cost = any_cost(limits_.front().in.zone.policy);
        const Time hold = hold_.count();
        const Time took = any_of<Time>(
            { 0, 1, any(0, hold / 20), any(0, hold / 2), hold / 2, hold, any(0, 4 * hold) });
        std::vector<Applied> applied;
        for (Limit& limit : limits_) {
            limit.in.key = key;
            applied.push_back({ limit.in, cost, limit.shadow });
        }
        auto decided = std::make_shared<DecidedRequest>(applied, Decision::Rules{}, clock_of_test);
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            decided->limits[i].holds = limits_[i].held.get();
        }
        decided->decision.start();
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            Limit& limit = limits_[i];
            limit.refused += decided->granted(i) ? 0 : 1;
            limit.least_left = limit.least_left < 0
                ? decided->remaining(i)
                : std::min(limit.least_left, decided->remaining(i));
        }
        passes = decided->result() != Result::rejected;
        const Time end = the_time.count() + took;
        running_.push({ end, std::move(decided) });
        return seconds_text(end) + " " + seconds_text(took) + " " + key + " "
            + std::to_string(cost);
    }

    microseconds hold_{ 0 };
    std::deque<Limit> limits_;
    std::priority_queue<Running> running_;  // before the limits, to which they refer
};

TEST_F(RehearseInFlight, decides_as_the_module_does_whose_workers_renew_and_release)
{
    const std::int64_t traces = from_environment("TRACE_STEPS", 20'000) / 20;
    std::uint64_t refused = 0;
    for (std::int64_t trace = 0; trace < traces; ++trace) {
        begin();
        RehearsedLog log(conf_text(), "$msec $request_time $k $c");
        for (int step = 0; step < 200; ++step) {
            bool expected = false;
            const std::string line = request(expected);
            ASSERT_EQ(log.passes(line), expected)
                << "trace " << trace << ", step " << step << ": " << line << "\n"
                << conf_text();
            const Time hold = hold_.count();
            Time next = the_time.count() + any_of<Time>({ 0, 0, 1, any(0, hold / 20), hold / 8 });
            if (any(0, 3) == 0) {
                next = std::max(the_time.count(), running_.top().end - any(0, 1));
            }
            advance(next);
        }
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            ASSERT_EQ(log.results()[i].refused, limits_[i].refused) << conf_text();
            ASSERT_EQ(log.results()[i].least_left, limits_[i].least_left) << conf_text();
            refused += limits_[i].held == nullptr ? 0 : limits_[i].refused;
        }
    }
    EXPECT_GT(refused, static_cast<std::uint64_t>(traces) * 10);
}

/// A check of a limit of three at one time.
InFlightCheck check_of(
    UnitsInFlight& units, std::int64_t now, std::int64_t end, std::int64_t cost = 1)
{
    static const Policy policy{ Algorithm::concurrency, { 3, seconds{ 60 } }, {}, {} };
    return { units, policy, microseconds{ now }, cost, microseconds{ end } };
}

TEST(UnitsInFlightTest, are_released_in_the_order_of_the_ends)
{
    UnitsInFlight units;
    EXPECT_TRUE(check_of(units, 0, 300).commit(true).granted);
    EXPECT_TRUE(check_of(units, 0, 100).commit(true).granted);
    EXPECT_EQ(check_of(units, 0, 200).commit(true).remaining, 0);
    EXPECT_FALSE(check_of(units, 99, 500).commit(true).granted);
    EXPECT_TRUE(check_of(units, 100, 150).granted()) << "a request that ends now holds nothing";
    EXPECT_EQ(check_of(units, 199, 0, 0).commit(true).remaining, 1);
    EXPECT_EQ(check_of(units, 200, 0, 0).commit(true).remaining, 2);
    EXPECT_EQ(check_of(units, 299, 0, 0).life(), microseconds{ 1 });
    EXPECT_EQ(check_of(units, 300, 0, 0).commit(true), (Verdict{ true, 3, {}, microseconds{ 0 } }));
    EXPECT_EQ(units.units(), 0);
}

TEST(UnitsInFlightTest, are_not_held_by_what_is_refused_or_not_taken)
{
    UnitsInFlight units;
    EXPECT_EQ(check_of(units, 0, 100, 2).commit(false).remaining, 3) << "another limit refuses";
    EXPECT_EQ(check_of(units, 0, 100, 4).commit(true).remaining, 3) << "more than the limit";
    EXPECT_EQ(check_of(units, 0, 100, 2).commit(true).remaining, 1);
    EXPECT_EQ(check_of(units, 0, 900, 2).commit(true).remaining, 1);
    EXPECT_EQ(check_of(units, 0, 900, 0).commit(true).remaining, 1);
    EXPECT_EQ(units.last_end(), 100);
}

}  // namespace
}  // namespace ratelimit

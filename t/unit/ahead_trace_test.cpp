// The bound of ahead=n: whatever the order in which requests, messages, losses and time come, at
// most n units of each worker pass beyond what the algorithm allows.

#include "ahead_fixture.h"

#include <random>

namespace ratelimit {
namespace {

struct Passed {
    microseconds at;
    std::int64_t cost;
};

/// What the algorithm counts at the time of the last request that passed, if each counts when it
/// passes. By the rules of doc/algorithms.md, added up plainly.
std::int64_t used(const Policy& policy, const std::vector<Passed>& all)
{
    const microseconds now = all.back().at;
    const microseconds window = policy.rate.window;
    const microseconds start = now - now % window;
    const auto sum = [&all](auto&& counts) {
        std::int64_t total = 0;
        for (const Passed& passed : all) {
            total += counts(passed.at) ? passed.cost : 0;
        }
        return total;
    };
    switch (policy.algorithm) {
    case Algorithm::fixed_window:
        return sum([&](microseconds at) { return at >= start; });
    case Algorithm::sliding_window_counter: {
        const auto before =
            sum([&](microseconds at) { return at < start && at >= start - window; });
        return sum([&](microseconds at) { return at >= start; })
            + before * (window - (now - start)).count() / window.count();
    }
    case Algorithm::sliding_window_log:
        return sum([&](microseconds at) { return at > now - window; });
    case Algorithm::sliding_window_buckets: {
        const microseconds width = policy.bucket_width();
        return sum([&](microseconds at) { return at - at % width + width > now - window; });
    }
    default:
        break;
    }
    microseconds arrival{ 0 };
    for (const Passed& passed : all) {
        arrival = std::max(arrival, passed.at) + passed.cost * window / policy.rate.quota;
    }
    return ((arrival - now) * policy.rate.quota + window - microseconds{ 1 }) / window;
}

class AheadTrace : public AheadTest {
protected:
    static constexpr std::int64_t quota = 20;
    static constexpr std::int64_t workers = 3;

    struct Waiting {
        DecidedRequest* request;
        std::int64_t cost;
    };
    struct Worker {
        AheadWorker& worker;
        KeyedZone& in;
        std::vector<Waiting> waiting;
    };

    void begin(Algorithm algorithm, unsigned seed)
    {
        const std::string name = std::string(name_of(algorithm)) + "_" + std::to_string(seed);
        all_.clear();
        passed_.clear();
        excused_ = 0;
        for (int i = 0; i < workers; ++i) {  // the first two are of one node
            AheadWorker& of = worker();
            KeyedZone* const node = i == 1 ? &all_.front().in : nullptr;
            KeyedZone& in = zone(of, name, quota, algorithm, node);
            if (keeps_arrival_time(algorithm)) {
                in.zone.policy.burst = algorithm == Algorithm::token_bucket ? quota : quota - 1;
            }
            all_.push_back({ of, in, {} });
        }
        random_.seed(seed);
    }

    unsigned random(unsigned below) { return static_cast<unsigned>(random_()) % below; }

    void pass(std::int64_t cost)
    {
        passed_.push_back({ now(), cost });
        const std::int64_t beyond = used(all_.front().in.zone.policy, passed_) - quota;
        ASSERT_LE(beyond, workers * ahead + excused_);
        most_beyond_ = std::max(most_beyond_, beyond);
    }
    void request(Worker& of)
    {
        const std::int64_t cost = random(8) == 0 ? 2 : 1;
        DecidedRequest& request = start({ { of.in, cost, false, std::nullopt } });
        if (request.was_sent) {
            of.waiting.push_back({ &request, cost });
        } else if (request.result() == Result::passed) {
            pass(cost);
        }
    }
    void deliver(Worker& of)
    {
        ASSERT_TRUE(of.worker.deliver());
        for (const Waiting& each : of.waiting) {
            ASSERT_EQ(each.request->calls, 1);
            if (each.request->result() == Result::passed) {
                pass(each.cost);
            }
        }
        of.waiting.clear();
    }
    /// All connections are lost. A check that is sent again because of that may pass beyond the
    /// limit (doc/algorithms.md, "Messages that are lost").
    void cut()
    {
        for (const Worker& of : all_) {
            for (const Waiting& each : of.waiting) {
                excused_ += each.cost;
            }
        }
        server_.ask({ "CLIENT", "KILL", "TYPE", "normal" });
    }
    void play(int steps, bool losses)
    {
        for (int i = 0; i < steps && !HasFatalFailure(); ++i) {
            Worker& of = all_[random(workers)];
            const unsigned what = random(100);
            if (what < 60) {
                request(of);
            } else if (what < 80) {
                deliver(of);
            } else if (what < 97) {
                set_time(now() + microseconds{ random(4'000'000) });
            } else if (losses) {
                cut();
            }
        }
    }
    /// Everything that passed is counted, once.
    void expect_exact_counts()
    {
        for (Worker& of : all_) {
            deliver(of);
            ASSERT_TRUE(of.worker.settle());
        }
        set_time(now() - now() % 60s + 3 * 60s);
        const std::size_t before = passed_.size();
        for (Worker& of : all_) {
            request(of);
            deliver(of);
            ASSERT_TRUE(of.worker.settle());
        }
        std::int64_t counted = 0;
        for (std::size_t i = before; i < passed_.size(); ++i) {
            counted += passed_[i].cost;
        }
        Worker& any = all_.front();
        EXPECT_EQ(left_in_redis(any.worker, any.in), quota - counted);
    }

    std::vector<Worker> all_;
    std::vector<Passed> passed_;
    std::int64_t excused_ = 0;
    std::int64_t most_beyond_ = 0;
    std::mt19937 random_;
};

TEST_F(AheadTrace, never_more_than_n_units_of_each_worker_pass_beyond_the_limit)
{
    for (const Algorithm algorithm : rate_algorithms) {
        most_beyond_ = 0;
        for (unsigned seed = 1; seed <= 4; ++seed) {
            SCOPED_TRACE(std::string(name_of(algorithm)) + " " + std::to_string(seed));
            begin(algorithm, seed);
            play(250, false);
            expect_exact_counts();
            ASSERT_FALSE(HasFailure());
        }
        EXPECT_GT(most_beyond_, 2) << name_of(algorithm) << ": the traces try hard enough";
    }
}

TEST_F(AheadTrace, nor_if_connections_are_lost)
{
    for (const Algorithm algorithm : rate_algorithms) {
        for (unsigned seed = 1; seed <= 3; ++seed) {
            SCOPED_TRACE(std::string(name_of(algorithm)) + " " + std::to_string(seed));
            begin(algorithm, seed);
            play(250, true);
            for (Worker& of : all_) {
                deliver(of);
                EXPECT_TRUE(of.worker.settle()) << "all is reported in the end";
            }
            ASSERT_FALSE(HasFailure());
        }
    }
}

}  // namespace
}  // namespace ratelimit

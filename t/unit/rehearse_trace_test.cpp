// Random traces as logs: ratelimit-rehearse decides each request as the module does without Redis,
// by src/zone and src/store in shared memory.

#include "decision_fixture.h"
#include "limit/rate_text.h"
#include "limit/reserve.h"
#include "rehearse_log.h"
#include "trace_maker.h"

#include <deque>

namespace ratelimit {
namespace {

using std::chrono::seconds;

class RehearseTrace : public testing::Test, protected TraceMaker {
protected:
    struct Limit {
        KeyedZone in;
        bool variable_rate = false;
        bool shadow = false;
        bool charges = false;
        bool reserves = false;
        std::vector<Rate> rates;  // that a variable rate takes
    };

    void add_limit()
    {
        Limit& limit = limits_.emplace_back();
        Zone& zone = limit.in.zone;
        zone.name = "z" + std::to_string(limits_.size() - 1);
        zone.policy = any_policy(static_cast<Algorithm>(any(0, 6)));
        if (any(0, 3) == 0) {
            zone.policy.block = any_of<Time>({ 1, any(1, 100), 3600 }) * seconds{ 1 };
        }
        zone.shared = &limit.in.memory.zone();
        limit.shadow = any(0, 4) == 0;
        limit.charges = any(0, 3) == 0;
        limit.reserves = any(0, 2) == 0;
        limit.rates = { zone.policy.rate };
        if (any(0, 3) == 0) {
            limit.variable_rate = true;
            limit.rates.push_back(Rate{ any(1, 30), any(1, 100) * seconds{ 1 } });
            limit.rates.push_back(Rate{ any(1, 30), limit.rates[0].window });
        }
    }

    /// The policy of the first limit, with a rate that it takes.
    Policy first_policy() const
    {
        Policy policy = limits_.front().in.zone.policy;
        policy.rate = limits_.front().rates.front();
        return policy;
    }

    std::string conf_text() const
    {
        std::string zones;
        std::string limits;
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            const Limit& limit = limits_[i];
            const Policy& policy = limit.in.zone.policy;
            const std::string number = std::to_string(i);
            zones += "ratelimit_zone $k zone=z" + number
                + " rate=" + (limit.variable_rate ? "$r" + number : rate_text(policy.rate))
                + " algorithm=" + std::string(name_of(policy.algorithm));
            if (policy.burst) {
                zones += " burst=" + std::to_string(*policy.burst);
            }
            if (policy.precision) {
                zones += " precision=" + std::to_string(*policy.precision / seconds{ 1 }) + "s";
            }
            if (policy.block.count() > 0) {
                zones += " block=" + std::to_string(policy.block / seconds{ 1 }) + "s";
            }
            zones += ";\n";
            limits += "ratelimit zone=z" + number + " cost=$c" + (limit.shadow ? " shadow" : "")
                + (limit.charges ? " charge=$w" : "") + (limit.reserves ? " reserve=$v" : "")
                + ";\n";
        }
        return zones + limits;
    }

    std::string any_reserve()
    {
        return any_of<std::string>(
            { "0", "20%", std::to_string(any(0, 100)) + "%", std::to_string(any(0, 60)), "x" });
    }

    /// Decides a request by the module, and returns its line for the log.
    std::string request(std::string& expected)
    {
        const std::string key = "key" + std::to_string(any(1, 4));
        const std::int64_t cost = any_cost(first_policy());
        const std::int64_t charge = any(0, 3) * any(0, 3);
        const std::string reserve = any_reserve();
        std::string rates;
        std::vector<Applied> applied;
        for (Limit& limit : limits_) {
            limit.in.key = key;
            Applied& one = applied.emplace_back(Applied{ limit.in });
            one.cost = cost;
            one.shadow = limit.shadow;
        }
        DecidedRequest decided(applied, {}, clock_of_test);
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            const auto& choices = limits_[i].rates;
            const Rate rate = choices[static_cast<std::size_t>(
                any(0, static_cast<std::int64_t>(choices.size()) - 1))];
            rates += " " + rate_text(rate);
            Policy& policy = decided.limits[i].policy;
            policy.rate = rate;
            if (limits_[i].reserves) {
                policy.reserve = parse_reserve(reserve).value_or(Reserve{}).of(policy.whole());
            }
            decided.limits[i].settled_later = limits_[i].charges;
        }
        decided.decision.start();
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            if (limits_[i].charges) {
                decided.decision.settle(decided.limits[i], charge);
            }
            refused_[i] += decided.granted(i) ? 0 : 1;
        }
        expected = decided.result() == Result::rejected ? "refused" : "passed";
        last_ = decided.limits.front().state;
        char time[32];
        std::snprintf(
            time, sizeof(time), "%lld.%06lld", static_cast<long long>(the_time.count() / second),
            static_cast<long long>(the_time.count() % second));
        return std::string(time) + " " + key + " " + std::to_string(cost) + " "
            + std::to_string(charge) + " " + reserve + rates;
    }

    std::deque<Limit> limits_;
    std::vector<std::uint64_t> refused_;
    Verdict last_;
};

TEST_F(RehearseTrace, decides_as_the_module_does_in_this_nodes_memory)
{
    const std::int64_t traces = from_environment("TRACE_STEPS", 20'000) / 20;
    std::uint64_t refused = 0;
    for (std::int64_t trace = 0; trace < traces; ++trace) {
        limits_.clear();
        std::string format = "$msec $k $c $w $v";
        for (std::int64_t i = any(1, 3); i > 0; --i) {
            format += " $r" + std::to_string(limits_.size());
            add_limit();
        }
        for (Limit& limit : limits_) {
            if (limit.variable_rate) {
                limit.in.zone.policy.rate = {};
            }
        }
        refused_.assign(limits_.size(), 0);
        the_time = microseconds{ start_of_traces + any(0, day) };
        RehearsedLog log(conf_text(), format);
        for (int step = 0; step < 300; ++step) {
            std::string expected;
            const std::string line = request(expected);
            ASSERT_EQ(log.passes(line) ? "passed" : "refused", expected)
                << "trace " << trace << ", step " << step << ": " << line << "\n"
                << conf_text();
            the_time = std::max(
                the_time, microseconds{ any_later(first_policy(), the_time.count(), last_) });
        }
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            ASSERT_EQ(log.results()[i].refused, refused_[i]) << conf_text();
            refused += refused_[i];
        }
    }
    EXPECT_GT(refused, static_cast<std::uint64_t>(traces) * 10);
}

}  // namespace
}  // namespace ratelimit

// Decisions of limits whose keys an override blocks, and the records of overrides.

#include "decision_fixture.h"
#include "limit/fail_mode.h"
#include "limit/override.h"
#include "limit/rate_headers.h"

#include <set>
#include <vector>

namespace ratelimit {
namespace {

Applied blocks(KeyedZone& in, bool shadow = false, std::int64_t cost = 1)
{
    return { in, cost, shadow, 0, false, 100s };
}

class OverrideDecision : public DecisionTest {};

TEST_F(OverrideDecision, a_block_refuses_without_redis_and_is_counted_nowhere)
{
    for (Coalescer* place : { &redis(), static_cast<Coalescer*>(nullptr) }) {
        KeyedZone& blocked_zone = zone(9, place);
        KeyedZone& other = zone(9, place);
        const DecidedRequest& refused = decide({ blocks(blocked_zone), { other } });
        EXPECT_EQ(refused.result(), Result::rejected);
        EXPECT_FALSE(refused.was_sent);
        EXPECT_EQ(refused.source(), Source::overridden);
        EXPECT_EQ(refused.limits[0].state, blocked(1, 100s));
        EXPECT_EQ(refused.decision.outcome().retry_after, 100s);
        EXPECT_FALSE(refused.limits[0].in_redis() && denied(blocked_zone))
            << "it is not remembered";
        EXPECT_EQ(decide({ { blocked_zone }, { other } }).remaining(1), 8);
        EXPECT_EQ(decide(blocked_zone).remaining(), 7);
    }
}

TEST_F(OverrideDecision, a_block_in_a_shadow_limit_does_not_refuse)
{
    KeyedZone& shadowed = zone(9);
    KeyedZone& other = zone(9);
    const DecidedRequest& passed = decide({ blocks(shadowed, true), { other } });
    EXPECT_EQ(passed.result(), Result::passed);
    EXPECT_FALSE(passed.granted(0));
    EXPECT_EQ(passed.remaining(1), 8);
}

TEST_F(OverrideDecision, a_cost_of_0_reads_a_block_and_passes)
{
    KeyedZone& in = zone(9);
    const DecidedRequest& peeked = decide({ blocks(in, false, 0) });
    EXPECT_EQ(peeked.result(), Result::passed);
    EXPECT_EQ(peeked.limits[0].state, blocked(0, 100s));
}

TEST_F(OverrideDecision, a_dry_run_reports_a_block)
{
    KeyedZone& in = zone(9);
    EXPECT_EQ(decide({ blocks(in) }, { FailMode::open, true }).result(), Result::rejected_dry_run);
}

TEST_F(OverrideDecision, a_leased_token_of_another_limit_is_returned)
{
    KeyedZone& in = zone(9);
    KeyedZone& leasing = zone(1000);
    leasing.zone.lease = 100;
    lease(leasing, 5);
    EXPECT_EQ(decide({ blocks(in), { leasing } }).result(), Result::rejected);
    EXPECT_EQ(leased(leasing), 5);
}

Applied ends_in(KeyedZone& in, microseconds rest, std::int64_t cost = 1)
{
    return { in, cost, false, 0, false, {}, false, rest };
}

/// What clients see of the first limit: reset, retry time, effective window.
struct Shown {
    explicit Shown(const DecidedRequest& request)
        : reset(shown_reset(request.limits[0].policy, request.limits[0].state)),
          retry(shown_retry(request.limits[0].state)),
          window(effective_window(request.limits[0].policy, request.limits[0].state))
    {
    }
    microseconds reset;
    std::optional<microseconds> retry;
    microseconds window;
};

TEST_F(OverrideDecision, all_times_that_a_client_sees_end_with_the_override)
{
    for (Coalescer* place : { &redis(), static_cast<Coalescer*>(nullptr) }) {
        KeyedZone& in = zone(1, place);
        EXPECT_EQ(Shown(decide({ ends_in(in, 3s) })).reset, 3s) << "it passes";
        for (int again = 0; again < 2; ++again) {
            const DecidedRequest& refused = decide({ ends_in(in, 3s) });
            EXPECT_EQ(refused.result(), Result::rejected);
            EXPECT_EQ(refused.decision.outcome().retry_after, 3s);
            EXPECT_EQ(Shown(refused).retry, 3s);
            EXPECT_EQ(Shown(refused).reset, 3s);
            EXPECT_EQ(Shown(refused).window, 3s);
        }
        EXPECT_EQ(Shown(decide({ ends_in(in, 3s, 2) })).retry, std::nullopt) << "never";
        EXPECT_EQ(Shown(decide({ ends_in(in, 3s, 0) })).reset, 3s) << "a peek";
        EXPECT_EQ(Shown(decide({ ends_in(in, 3s, 0) })).window, 3s);
        EXPECT_GT(Shown(decide({ ends_in(in, 24h) })).retry, 1h);
        EXPECT_LT(Shown(decide({ ends_in(in, 24h) })).retry, 24h) << "nor is it prolonged";
        EXPECT_GT(decide(in).decision.outcome().retry_after, 1h) << "one without an end";
    }
}

TEST_F(OverrideDecision, an_override_that_ends_changes_no_delay)
{
    KeyedZone& in = zone(24, Algorithm::leaky_bucket);
    in.zone.policy.burst = 2;
    EXPECT_EQ(decide({ ends_in(in, 3s) }).decision.outcome().wait, 0s);
    const DecidedRequest& delayed = decide({ ends_in(in, 3s) });
    EXPECT_EQ(delayed.decision.outcome().wait, 1h);
    EXPECT_EQ(Shown(delayed).reset, 3s);
    decide({ ends_in(in, 3s) });
    EXPECT_EQ(Shown(decide({ ends_in(in, 2h, 0) })).window, 1h) << "a peek: the next one";
    EXPECT_EQ(Shown(decide({ ends_in(in, 3s, 0) })).window, 3s);
}

TEST_F(OverrideDecision, in_a_calendar_period_only_a_block_ends_with_it)
{
    KeyedZone& in = zone(1);
    in.zone.policy.begin = now - 1h;
    EXPECT_EQ(decide({ ends_in(in, 3s) }).result(), Result::passed);
    EXPECT_GT(Shown(decide({ ends_in(in, 3s) })).retry, 1h) << "what was counted stays";

    const Policy& policy = in.zone.policy;
    Verdict refused = blocked(1, 1h);
    refused.retry_after = 1h;
    refused.reset = 20h;
    Verdict longer = refused;
    longer.retry_after = 20h;
    end_with_override(refused, policy, 3s);
    EXPECT_EQ(refused.blocked, 3s);
    EXPECT_EQ(refused.retry_after, 3s);
    EXPECT_EQ(refused.reset, 20h);
    end_with_override(longer, policy, 3s);
    EXPECT_EQ(longer.retry_after, 20h) << "refused by the count, too";
}

Policy overridden(const Policy& policy, Rate rate, std::optional<std::int64_t> burst = {})
{
    Policy changed = policy;
    apply({ Override::Kind::rate, rate, burst }, changed);
    return changed;
}

TEST(ZoneRecord, each_override_of_rate_or_burst_has_a_record_of_its_own)
{
    constexpr Rate own{ 5, std::chrono::minutes{ 1 } };
    constexpr Rate more{ 7, std::chrono::minutes{ 1 } };
    for (const Algorithm algorithm : rate_algorithms) {
        for (const bool variable : { false, true }) {
            Zone zone;
            zone.policy = { algorithm, variable ? Rate{} : own, {}, {} };
            Policy limit = zone.policy;
            limit.rate = own;
            const bool windows = variable && !keeps_arrival_time(algorithm);
            EXPECT_EQ(zone.record_of(limit), windows ? 60U : 0U) << name_of(algorithm);
            std::set<std::uint32_t> records{ zone.record_of(limit) };
            std::set<std::uint64_t> hashes{ zone.policy_hash(limit) };
            std::vector<Policy> all;
            for (const Rate& rate : { own, more, Rate{ 5, std::chrono::hours{ 1 } } }) {
                all.push_back(overridden(zone.policy, rate));
                if (keeps_arrival_time(algorithm)) {
                    all.push_back(overridden(zone.policy, rate, 20));
                }
            }
            for (const Policy& policy : all) {
                records.insert(zone.record_of(policy));
                hashes.insert(zone.policy_hash(policy));
                EXPECT_LT(zone.record_of(policy), 1U << 30U);
                EXPECT_GE(zone.record_of(policy), 1U << 29U);
            }
            EXPECT_EQ(records.size(), all.size() + 1) << name_of(algorithm);
            EXPECT_EQ(hashes.size(), all.size() + 1) << name_of(algorithm);
        }
    }
}

TEST(ZoneRecord, an_override_has_one_record_whatever_burst_a_location_has)
{
    Zone zone;
    zone.policy = { Algorithm::gcra, { 5, std::chrono::minutes{ 1 } }, 3, {} };
    Policy location = zone.policy;
    location.burst = 9;
    constexpr Rate rate{ 8, std::chrono::minutes{ 1 } };
    EXPECT_EQ(
        zone.record_of(overridden(zone.policy, rate)), zone.record_of(overridden(location, rate)));
    EXPECT_EQ(
        zone.record_of(overridden(zone.policy, rate)),
        zone.record_of(policy_of_one_node(overridden(zone.policy, rate), 3)));
}

}  // namespace
}  // namespace ratelimit

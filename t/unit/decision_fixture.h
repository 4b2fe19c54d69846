#pragma once

#include "all_algorithms.h"
#include "check/coalescer.h"
#include "check/lease_renewals.h"
#include "check/script_text.h"
#include "client_fixture.h"
#include "redis/make_client.h"
#include "slab_zone.h"
#include "zone/decision.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit {

/// A zone with its memory, and the key that the requests of a test have in it.
struct KeyedZone {
    TestZone memory;
    Zone zone;
    std::string key;
    Coalescer* coalescer = nullptr;     // null: the zone is counted in this node's memory
    AheadUnits* ahead = nullptr;        // of a zone with ahead=
    LeaseRenewals* renewals = nullptr;  // null: leases are not renewed
    std::optional<SequenceScripts> sequences;
    CheckScripts scripts;
    std::string redis_key;
    std::string block_key;  // if the zone has a block
};

/// A zone's limit with the parameters of one request.
struct Applied {
    KeyedZone& in;
    std::int64_t cost = 1;
    bool shadow = false;
    std::optional<std::int64_t> undelayed = 0;
    bool malformed = false;
    std::optional<microseconds> blocked_for = std::nullopt;  // by an override
    bool settled_later = false;
    std::optional<microseconds> override_ends = std::nullopt;
};

/// A request and its decision.
class DecidedRequest final : public Decision::Owner {
public:
    DecidedRequest(
        const std::vector<Applied>& applied, Decision::Rules rules, const NodeClock& clock)
        : limits(applied.size()),
          sent_(applied.size()),
          decision(limits, sent_, rules, clock, *this)
    {
        for (std::size_t i = 0; i < applied.size(); ++i) {
            const KeyedZone& in = applied[i].in;
            AppliedLimit& limit = limits[i];
            limit.zone = &in.zone;
            limit.owner = &in.zone;
            limit.key = in.key;
            limit.policy = in.zone.policy;
            limit.policy_hash = in.zone.policy_hash(in.zone.policy);
            limit.cost = applied[i].cost;
            limit.shadow = applied[i].shadow;
            limit.undelayed = applied[i].undelayed;
            limit.malformed = applied[i].malformed;
            limit.blocked_for = applied[i].blocked_for;
            limit.override_ends = applied[i].override_ends;
            limit.settled_later = applied[i].settled_later;
            if (!limit.malformed) {
                limit.coalescer = in.coalescer;
                limit.ahead = in.ahead;
                limit.renewals = in.renewals;
                limit.scripts = in.scripts;
                limit.redis_key = in.redis_key;
                limit.block_key = in.block_key;
            }
        }
    }

    void decided() noexcept override
    {
        ++calls;
        if (then) {
            then();
        }
    }

    Result result() const noexcept { return decision.result(); }
    Source source(std::size_t limit = 0) const { return limits[limit].source; }
    bool granted(std::size_t limit = 0) const
    {
        return limits[limit].decided && limits[limit].state.granted;
    }
    std::int64_t remaining(std::size_t limit = 0) const { return limits[limit].state.remaining; }
    std::optional<microseconds> retry_after(std::size_t limit = 0) const
    {
        return limits[limit].state.retry_after;
    }

    std::vector<AppliedLimit> limits;

private:
    std::vector<RemoteLimit*> sent_;

public:
    Decision decision;
    int calls = 0;               // of decided()
    std::function<void()> then;  // called by decided()
    bool was_sent = false;
};

/// Decisions over real Redis servers, whose time the test sets (zones have Clock::local by
/// default), and over real shared memory.
class DecisionTest : public ClientTest {
protected:
    static constexpr Decision::Rules opens{ FailMode::open, false };
    static constexpr Decision::Rules closes{ FailMode::closed, false };
    static constexpr Decision::Rules local{ FailMode::local, false };
    static constexpr Decision::Rules dry_run{ FailMode::closed, true };

    static void SetUpTestSuite() { server = std::make_unique<RedisServer>(); }
    static void TearDownTestSuite() { server.reset(); }

    void SetUp() override
    {
        begin_nginx();
        now = 1'800'000'000s;
        behind = 0s;
        for (const Algorithm algorithm : all_algorithms) {
            const SequenceLimit limit{ algorithm };
            scripts_.add(sequence_script({ &limit, 1 }));
            charges_.push_back(scripts_.add(charge_script(algorithm)));
        }
        several_ = scripts_.add(several_script(all_algorithms));
        refund_ = scripts_.add(refund_script());
        block_ = scripts_.add(block_script());
    }

    /// Another Redis for the zones that name it.
    Coalescer& redis_at(int port, milliseconds timeout = 10s)
    {
        auto options = options_to(port);
        options.server.timeout = timeout;
        options.server.connect_timeout = timeout;
        auto& client = *clients_.emplace_back(
            redis::make_client({ loop_, std::move(options), scripts_, events_ }));
        client.start();
        return *coalescers_.emplace_back(std::make_unique<Coalescer>(client, clock.since_epoch));
    }
    Coalescer& redis()
    {
        if (redis_ == nullptr) {
            redis_ = &redis_at(server->port());
        }
        return *redis_;
    }
    /// A client without a running server.
    Coalescer& no_redis() { return redis_at(free_port(), 100ms); }

    /// A zone in Redis, of `quota` requests a day.
    KeyedZone& zone(
        std::int64_t quota, Coalescer* in, Algorithm algorithm = Algorithm::fixed_window)
    {
        static int zones = 0;
        KeyedZone& made = zones_.emplace_back();
        made.zone.name = "zone" + std::to_string(++zones);
        made.zone.policy = { algorithm, { quota, 24h }, {}, {} };
        made.zone.clock = Clock::local;
        made.zone.key_start = made.zone.name + ":{";
        made.zone.shared = &made.memory.zone();
        made.key = "key";
        made.coalescer = in;
        const SequenceLimit limit{ algorithm };
        made.sequences.emplace(std::span{ &limit, 1 }, scripts_);
        made.scripts = { several_, refund_, &*made.sequences, SequenceScripts::bit(0) };
        made.scripts.block = block_;
        made.scripts.charge = charges_[static_cast<std::size_t>(algorithm)];
        made.redis_key = made.zone.key_start + made.key + "}";
        return made;
    }
    KeyedZone& zone(std::int64_t quota, Algorithm algorithm = Algorithm::fixed_window)
    {
        return zone(quota, &redis(), algorithm);
    }
    KeyedZone& local_zone(std::int64_t quota) { return zone(quota, nullptr); }

    DecidedRequest& prepare(const std::vector<Applied>& limits, Decision::Rules rules = {})
    {
        return *requests_.emplace_back(std::make_unique<DecidedRequest>(limits, rules, clock));
    }
    DecidedRequest& start(const std::vector<Applied>& limits, Decision::Rules rules = {})
    {
        DecidedRequest& request = prepare(limits, rules);
        request.was_sent = request.decision.start();
        return request;
    }
    DecidedRequest& decide(const std::vector<Applied>& limits, Decision::Rules rules = {})
    {
        DecidedRequest& request = start(limits, rules);
        EXPECT_EQ(request.calls, 0) << "from inside start";
        finish(request);
        return request;
    }
    /// Waits until a request that was started is decided.
    void finish(DecidedRequest& request)
    {
        if (request.was_sent) {
            EXPECT_TRUE(loop_.run_until([&] { return request.calls > 0; }));
        }
        EXPECT_EQ(request.calls, request.was_sent ? 1 : 0);
        EXPECT_NE(request.result(), Result::none);
    }
    DecidedRequest& decide(KeyedZone& in, Decision::Rules rules = {})
    {
        return decide({ { in } }, rules);
    }

    /// The requests of a day that remain in Redis, by a request of cost 0.
    std::int64_t left_in_redis(KeyedZone& in) { return decide({ { in, 0 } }).remaining(); }

    static KeyedRequest keyed(const KeyedZone& in, std::int64_t cost = 1)
    {
        return { in.key, in.zone.policy_hash(in.zone.policy), cost };
    }
    /// Adds a refusal as if Redis had refused the key now.
    static void deny(KeyedZone& in, microseconds retry_after, std::int64_t cost = 1)
    {
        Verdict refusal;
        refusal.retry_after = retry_after;
        refusal.reset = retry_after;
        DenialCache denials = in.memory.memory().denials();
        denials.add(
            keyed(in, cost), { 0, denials.forgets_of(in.key), now }, refusal, now,
            DenialCache::longest);
    }
    static bool denied(KeyedZone& in)
    {
        return in.memory.memory().denials().find(keyed(in), now).has_value();
    }
    /// Adds a lease as if Redis had leased this number of requests of cost 1 now.
    static void lease(KeyedZone& in, std::int64_t requests)
    {
        in.zone.lease = 100;
        RunReply answer;
        answer.taken = requests + 1;
        answer.remaining = 5;
        answer.reset = 24h;
        in.memory.memory().leases().add(keyed(in), in.zone.policy, answer, requests, now);
    }
    /// The number of requests of cost 1 that the leases pay for; uses the leases up.
    static int leased(KeyedZone& in)
    {
        int count = 0;
        while (in.memory.memory().leases().spend(keyed(in), in.zone.policy, 0, now).state) {
            ++count;
        }
        return count;
    }
    static std::int64_t left_in_memory(KeyedZone& in)
    {
        return in.memory.memory().local_limiter().peek({ in.key, in.zone.policy }, now).remaining;
    }

    static inline std::unique_ptr<RedisServer> server;
    /// Sets the clock, but not the steady one.
    static void set_back(microseconds by)
    {
        now -= by;
        behind += by;
    }

    static inline microseconds now{ 0 };     // since the epoch
    static inline microseconds behind{ 0 };  // by how much that was set back
    static inline const NodeClock clock{ +[]() noexcept { return now + behind - 1'000'000s; },
                                         +[]() noexcept { return now; } };

private:
    std::vector<redis::ScriptId> charges_;  // by algorithm
    redis::ScriptId several_{};
    redis::ScriptId refund_{};
    redis::ScriptId block_{};
    std::vector<std::unique_ptr<redis::Client>> clients_;
    std::vector<std::unique_ptr<Coalescer>> coalescers_;
    Coalescer* redis_ = nullptr;
    std::deque<KeyedZone> zones_;
    std::deque<std::unique_ptr<DecidedRequest>> requests_;
};

}  // namespace ratelimit

#pragma once

#include "check/ahead_units.h"
#include "decision_fixture.h"

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit {

/// A worker of a node with zones that have ahead=. It has an event loop of its own: what it sends
/// arrives when the test delivers it.
struct AheadWorker {
    AheadWorker(redis::ClientOptions options, const redis::ScriptRegistry& scripts)
        : client(redis::make_client({ loop, std::move(options), scripts, events })),
          coalescer(
              *client, +[]() noexcept { return now; }),
          units(
              *client, +[]() noexcept { return now; })
    {
        client->start();
    }

    /// Runs its event loop until Redis has answered all that was sent.
    bool deliver()
    {
        return loop.run_until([this] { return coalescer.idle() && client->idle(); });
    }
    /// The same, until nothing is without an answer: reports that failed are sent again, too.
    bool settle()
    {
        return loop.run_until([this] { return coalescer.idle() && units.idle(); });
    }

    static inline microseconds now{ 0 };

    LibeventLoop loop;
    Events events;
    std::unique_ptr<redis::Client> client;
    Coalescer coalescer;
    AheadUnits units;
};

/// Decisions of zones with ahead= over a real Redis, whose time is that of the test.
class AheadTest : public testing::Test {
protected:
    static constexpr std::int64_t ahead = 3;
    static constexpr Decision::Rules closes{ FailMode::closed, false };

    void SetUp() override
    {
        begin_nginx();
        for (const Algorithm algorithm : all_algorithms) {
            reports_.push_back(add(charge_script(algorithm)));
        }
        several_ = add(several_script(all_algorithms));
        refund_ = add(refund_script());
        set_time(1'800'000'000s);
    }

    /// A script that asks the test for the time.
    static std::string with_test_time(std::string script)
    {
        constexpr std::string_view asks = "call('TIME')";
        for (auto at = script.find(asks); at != script.npos; at = script.find(asks)) {
            script.replace(at, asks.size(), "call('LRANGE', 'clock', 0, -1)");
        }
        return script;
    }
    redis::ScriptId add(const std::string& script) { return scripts_.add(with_test_time(script)); }

    void set_time(microseconds time)
    {
        AheadWorker::now = time;
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
        server_.ask({ "DEL", "clock" });
        server_.ask({ "RPUSH", "clock", std::to_string(seconds.count()),
                      std::to_string((time - seconds).count()) });
    }
    static microseconds now() { return AheadWorker::now; }

    AheadWorker& worker(milliseconds timeout = 10s) { return worker_at(server_.port(), timeout); }
    AheadWorker& worker_at(int port, milliseconds timeout)
    {
        redis::ClientOptions options;
        options.servers = { { redis::announced_endpoint(
            "127.0.0.1", static_cast<std::uint16_t>(port)) } };
        options.server.timeout = options.server.connect_timeout = timeout;
        auto& made = *workers_.emplace_back(std::make_unique<AheadWorker>(options, scripts_));
        if (port == server_.port()) {
            EXPECT_TRUE(made.loop.run_until([&made] { return made.events.ups > 0; }));
        }
        return made;
    }

    /// A zone of `quota` requests a minute, as this worker sees it. `node`: another worker's view,
    /// whose memory it shares.
    KeyedZone& zone(
        AheadWorker& of, std::string_view name, std::int64_t quota,
        Algorithm algorithm = Algorithm::fixed_window, KeyedZone* node = nullptr)
    {
        KeyedZone& made = zones_.emplace_back();
        made.zone.name = name;
        made.zone.policy = { algorithm, { quota, 60s }, {}, {} };
        made.zone.key_start = made.zone.name + ":{";
        made.zone.shared = node == nullptr ? &made.memory.zone() : node->zone.shared;
        made.zone.ahead = ahead;
        made.key = "key";
        made.coalescer = &of.coalescer;
        made.ahead = &of.units;
        made.scripts = { several_, refund_ };  // no script of a sequence: several_ decides
        made.scripts.charge = reports_[static_cast<std::size_t>(algorithm)];
        made.redis_key = made.zone.key_start + made.key + "}";
        return made;
    }

    DecidedRequest& start(const std::vector<Applied>& limits, Decision::Rules rules = closes)
    {
        auto& request =
            *requests_.emplace_back(std::make_unique<DecidedRequest>(limits, rules, clock));
        request.was_sent = request.decision.start();
        return request;
    }
    DecidedRequest& start(KeyedZone& in, std::int64_t cost = 1) { return start({ { in, cost } }); }

    /// What remains by a check that knows nothing of ahead=.
    std::int64_t left_in_redis(AheadWorker& of, KeyedZone& in)
    {
        AheadUnits* const units = std::exchange(in.ahead, nullptr);
        DecidedRequest& request = start(in, 0);
        in.ahead = units;
        EXPECT_TRUE(of.loop.run_until([&request] { return request.calls > 0; }));
        return request.remaining();
    }

    static inline const NodeClock clock{ +[]() noexcept { return AheadWorker::now; },
                                         +[]() noexcept { return AheadWorker::now; } };

    RedisServer server_;

private:
    std::vector<redis::ScriptId> reports_;  // by algorithm
    redis::ScriptId several_{};
    redis::ScriptId refund_{};
    redis::ScriptRegistry scripts_;
    std::deque<KeyedZone> zones_;
    std::deque<std::unique_ptr<AheadWorker>> workers_;
    std::deque<std::unique_ptr<DecidedRequest>> requests_;
};

}  // namespace ratelimit

#pragma once

#include "check/settlement.h"
#include "coalescer_fixture.h"
#include "redis_server.h"

#include <gtest/gtest.h>

namespace ratelimit {

using namespace std::chrono_literals;

/// Checks of one key by each algorithm, to a Redis that the test stops.
class Late : public CoalescerTest, public testing::WithParamInterface<Algorithm> {
protected:
    void SetUp() override
    {
        refund_ = scripts_.add(refund_script());
        charge_ = scripts_.add(charge_script(GetParam()));
        block_ = scripts_.add(block_script());
        auto options = options_to(server_.port());
        options.server.timeout = 300ms;
        options.server.breaker_failures = 1000;
        begin(std::move(options));
        load_scripts(server_);
        policy_.algorithm = GetParam();
        if (keeps_arrival_time(GetParam())) {
            policy_.burst = GetParam() == Algorithm::token_bucket ? 10 : 9;
        }
    }

    /// lease: how many tokens it asks for.
    Request& ask(
        std::int64_t cost, std::optional<microseconds> now = std::nullopt, std::int64_t lease = 0)
    {
        Request& request = make({ { "key", policy_, cost, false, now } });
        RemoteLimit& limit = *request.limits[0];
        limit.scripts.refund = refund_;
        limit.scripts.charge = charge_;
        limit.owner = &owner_;
        limit.key = key_;
        if (limit.policy.block.count() > 0) {
            limit.block_key = "key:block";
            limit.scripts.block = block_;
            limit.scripts.sequences = nullptr;  // they have no block
        }
        request.lease_wanted = lease;
        EXPECT_TRUE(coalescer_->send(request));
        return request;
    }
    /// The same, and waits until all requests have ended.
    Request& asked(std::int64_t cost, std::optional<microseconds> now = std::nullopt)
    {
        Request& request = ask(cost, now);
        EXPECT_TRUE(run());
        return request;
    }
    /// The same while Redis stands still, as it does from then on.
    Request& asked_in_vain(std::int64_t cost, std::optional<microseconds> now = std::nullopt)
    {
        server_.pause();
        return asked(cost, now);
    }
    bool unsettled() const { return client_->unsettled().contains("key:block"); }
    static void settle(Request& request, std::int64_t cost)
    {
        ASSERT_NE(request.late, nullptr);
        request.late->left().settle(request.position.run, 0, cost);
    }
    static void refuse(Request& request)
    {
        ASSERT_NE(request.late, nullptr);
        request.late->left().refuse(request.position.run);
    }
    /// Waits until this much is counted.
    bool counts(std::int64_t expected, std::optional<microseconds> now = std::nullopt)
    {
        return loop_.run_until([&] {
            const Request& peek = asked(0, now);
            return peek.answered() && 10 - peek.remaining() == expected;
        });
    }

    struct Owner final : LimitOwner {
        void block_began() const noexcept override { ++began; }
        void refunded(std::string_view key) const noexcept override { refunds.emplace_back(key); }
        mutable int began = 0;
        mutable std::vector<std::string> refunds;
    };

    RedisServer server_;
    const std::string key_ = "key";
    Owner owner_;
    Policy policy_{ Algorithm::fixed_window, { 10, 24h }, {}, {} };
    redis::ScriptId refund_{};
    redis::ScriptId charge_{};
    redis::ScriptId block_{};
};

}  // namespace ratelimit

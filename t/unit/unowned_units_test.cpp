// Units of a concurrency limit that Redis counts for requests that do not get the reply: they are
// released when the reply comes.

#include "coalescer_fixture.h"
#include "redis_server.h"

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

class UnownedUnits : public CoalescerTest {
protected:
    void SetUp() override
    {
        refund_ = scripts_.add(refund_script(Algorithm::concurrency));
        auto options = options_to(server_.port());
        options.server.timeout = 300ms;
        options.server.breaker_failures = 1000;
        begin(std::move(options));
    }

    Request& ask(std::int64_t cost)
    {
        Request& request = make({ { "key", policy_, cost } }, false);
        request.limits[0]->scripts.refund = refund_;
        EXPECT_TRUE(coalescer_->send(request));
        return request;
    }
    /// Units that are held, by Redis.
    std::int64_t held()
    {
        Request& peek = ask(0);
        EXPECT_TRUE(run());
        return peek.answered() ? 10 - peek.remaining() : -1;
    }
    /// Waits until Redis has executed this number of scripts that wrote.
    bool executed(std::size_t releases)
    {
        return loop_.run_until([&] {
            const std::string stats = server_.ask({ "INFO", "commandstats" });
            const auto at = stats.find("cmdstat_del:calls=");
            const auto set = stats.find("cmdstat_setrange:calls=");
            const auto count = [&](std::size_t from) {
                return from == std::string::npos
                    ? 0
                    : std::stoul(stats.substr(stats.find('=', from) + 1));
            };
            return count(at) + count(set) >= releases;
        });
    }

    RedisServer server_;
    const Policy policy_{ Algorithm::concurrency, { 10, 1h }, {}, {} };
    redis::ScriptId refund_{};
};

TEST_F(UnownedUnits, of_a_check_that_has_timed_out_are_released_when_its_reply_comes)
{
    server_.pause();
    ask(3);
    ASSERT_TRUE(run());
    EXPECT_EQ(count(ShardPart::End::failed), 1);
    server_.resume();
    ASSERT_TRUE(executed(1));
    EXPECT_EQ(held(), 0);
}

TEST_F(UnownedUnits, of_requests_that_shared_a_call_are_released_and_no_others)
{
    server_.pause();
    Request& first = ask(3);
    ask(1);
    ask(1);
    ask(2);
    first.then = [this] { server_.pause(); };
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_TRUE(first.answered());
    EXPECT_EQ(count(ShardPart::End::failed), 3);
    server_.resume();
    ASSERT_TRUE(executed(3));  // counted by both runs of the call, and released for each
    ASSERT_TRUE(loop_.run_until([this] { return held() == 3; })) << "those of the first stay";
}

TEST_F(UnownedUnits, of_a_request_that_was_destroyed_are_released)
{
    server_.pause();
    ask(3);
    requests_.clear();
    server_.resume();
    ASSERT_TRUE(executed(1));
    EXPECT_EQ(held(), 0);
}

}  // namespace
}  // namespace ratelimit

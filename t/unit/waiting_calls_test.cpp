// Calls that cannot be sent yet.

#include "client_fixture.h"
#include "redis/waiting_calls.h"
#include "virtual_client.h"

#include <deque>
#include <new>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

TEST(WaitingCalls, a_call_for_which_there_is_no_memory_fails_and_the_next_are_sent)
{
    VirtualLoop loop;
    redis::WaitingCalls waiting(loop, [](unsigned) {});
    std::deque<EchoCall> calls;
    for (int i = 0; i < 3; ++i) {
        waiting.add(calls.emplace_back("x"));
    }
    int tried = 0;
    waiting.release([&tried](redis::Call&) {
        if (++tried == 2) {
            throw std::bad_alloc();
        }
        return true;
    });
    EXPECT_EQ(tried, 3);
    EXPECT_TRUE(waiting.empty());
    EXPECT_EQ(calls[1].fate, redis::Fate::unsent);
}

TEST(WaitingCalls, the_process_exits_if_only_calls_wait_that_do_not_delay_it)
{
    VirtualLoop loop;
    redis::WaitingCalls waiting(loop, [](unsigned) {});
    std::deque<EchoCall> calls;
    const auto add = [&](bool delays_exit, milliseconds until) {
        redis::Call& call = calls.emplace_back("x");
        call.delays_exit = delays_exit;
        call.routing.expires = until;
        waiting.add(call);
    };
    const auto soon = loop.now() + 10ms;
    const auto late = loop.now() + 1h;
    add(true, late);
    EXPECT_TRUE(loop.keeps_process());
    waiting.release([](redis::Call&) { return true; });
    add(false, late);
    EXPECT_FALSE(loop.keeps_process());
    add(true, soon);
    EXPECT_TRUE(loop.keeps_process());
    virtual_now += 20ms;
    loop.fire();
    EXPECT_FALSE(loop.keeps_process());
    waiting.end_all();
}

}  // namespace
}  // namespace ratelimit

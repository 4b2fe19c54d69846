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

}  // namespace
}  // namespace ratelimit

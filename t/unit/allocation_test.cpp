// Checks that go on and on allocate nothing from the heap but what hiredis does (by malloc): what
// they need is used again.

#include "allocation_count.h"
#include "coalescer_fixture.h"
#include "redis_server.h"

namespace ratelimit {
namespace {

class Allocations : public CoalescerTest {
protected:
    void SetUp() override { begin(options_to(server_.port())); }

    /// All requests once more; how often memory was allocated for that.
    std::size_t again()
    {
        for (const auto& request : requests_) {
            request->group.set(request->checks, true, *request);
        }
        const std::size_t before = allocation_count();
        for (const auto& request : requests_) {
            EXPECT_TRUE(request->group.send());
        }
        const bool ended = run();
        const std::size_t allocations = allocation_count() - before;
        EXPECT_TRUE(ended);
        EXPECT_EQ(count(CheckGroup::End::answered), std::ssize(requests_));
        return allocations;
    }

    std::size_t in_the_steady_state()
    {
        again();
        again();
        return again();
    }

    RedisServer server_;
};

TEST_F(Allocations, none_for_checks_of_different_keys)
{
    for (int i = 0; i < 50; ++i) {
        make({ { .key = "a key that is longer than short strings are " + std::to_string(i) } });
    }
    EXPECT_EQ(in_the_steady_state(), 0U);
}

TEST_F(Allocations, none_for_checks_of_one_key)
{
    for (int i = 0; i < 50; ++i) {
        make({ { .key = "hot",
                 .policy = { Algorithm::gcra, { 10, std::chrono::hours{ 1 } }, 99, {} } } });
    }
    EXPECT_EQ(in_the_steady_state(), 0U);
}

TEST_F(Allocations, none_for_checks_of_several_limits)
{
    for (int i = 0; i < 50; ++i) {
        make({ { .key = "hot" },
               { .key = "another key, as long as a token may be, number "
                     + std::to_string(i % 10) } });
    }
    EXPECT_EQ(in_the_steady_state(), 0U);
}

}  // namespace
}  // namespace ratelimit

// In the steady state checks allocate nothing from the heap, apart from hiredis (by malloc): their
// memory is reused.

#include "allocation_count.h"
#include "split_fixture.h"

#include <algorithm>

namespace ratelimit {
namespace {

/// Of several rounds. Memory that is reused grows in the first rounds, and again when a slow Redis
/// leaves more calls in flight than before. An allocation for each check is in every round.
template <class Round>
std::size_t fewest_allocations(Round&& round)
{
    std::size_t fewest = round();
    for (int i = 0; i < 30; ++i) {
        fewest = std::min(fewest, round());
    }
    return fewest;
}

class Allocations : public CoalescerTest {
protected:
    void SetUp() override { begin(options_to(server_.port())); }

    /// Sends all requests once more; returns the number of allocations meanwhile.
    std::size_t send_all()
    {
        for (const auto& request : requests_) {
            request->since = {};
        }
        const std::size_t before = allocation_count();
        for (const auto& request : requests_) {
            EXPECT_TRUE(coalescer_->send(*request));
        }
        const bool ended = run();
        const std::size_t allocations = allocation_count() - before;
        EXPECT_TRUE(ended);
        EXPECT_EQ(count(ShardPart::End::answered), std::ssize(requests_));
        return allocations;
    }

    std::size_t steady_state_allocations()
    {
        return fewest_allocations([this] { return send_all(); });
    }

    RedisServer server_;
};

TEST_F(Allocations, none_for_checks_of_different_keys)
{
    for (int i = 0; i < 50; ++i) {
        make({ { .key = "a key that is longer than short strings are " + std::to_string(i) } });
    }
    EXPECT_EQ(steady_state_allocations(), 0U);
}

TEST_F(Allocations, none_for_checks_of_one_key)
{
    for (int i = 0; i < 50; ++i) {
        make({ { .key = "hot",
                 .policy = { Algorithm::gcra, { 10, std::chrono::hours{ 1 } }, 99, {} } } });
    }
    EXPECT_EQ(steady_state_allocations(), 0U);
}

TEST_F(Allocations, none_for_checks_of_several_limits)
{
    for (int i = 0; i < 50; ++i) {
        make({ { .key = "hot" },
               { .key = "another key, as long as a token may be, number "
                     + std::to_string(i % 10) } });
    }
    EXPECT_EQ(steady_state_allocations(), 0U);
}

class SequenceAllocations : public Allocations {
protected:
    void SetUp() override
    {
        add_sequence({ { Algorithm::fixed_window }, { Algorithm::fixed_window } });
        Allocations::SetUp();
    }
};

TEST_F(SequenceAllocations, none_for_checks_of_a_sequence_of_limits)
{
    for (int i = 0; i < 50; ++i) {
        make({ { .key = "a key that is longer than short strings are " + std::to_string(i) },
               { .key = "another key, as long as a token may be, number " + std::to_string(i) } });
    }
    EXPECT_EQ(steady_state_allocations(), 0U);
}

class SplitAllocations : public SplitTest {
protected:
    /// Returns the number of allocations meanwhile.
    std::size_t send_and_refund()
    {
        const std::size_t before = allocation_count();
        check_all();
        for (SplitRequest& split : splits_) {
            EXPECT_TRUE(split.check->refund(microseconds{ 0 }));
        }
        return allocation_count() - before;
    }
};

TEST_F(SplitAllocations, none_for_limits_on_two_servers_nor_for_refunds)
{
    begin_ring();
    load_scripts(one_);
    load_scripts(other_);
    EXPECT_EQ(fewest_allocations([this] { return send_and_refund(); }), 0U);
    EXPECT_EQ(splits_.back().limits[0].state.remaining, 100) << "refunded each time";
}

}  // namespace
}  // namespace ratelimit

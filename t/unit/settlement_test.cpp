// Refunds and statements that Redis cannot execute at once, or answers late.

#include "late_fixture.h"

namespace ratelimit {
namespace {

class Settlements : public Late {};

TEST_P(Settlements, a_block_that_began_before_a_refund_could_be_executed_is_lifted)
{
    policy_.block = 1h;
    Request& passed = asked(10);
    ASSERT_TRUE(passed.answered());
    const RemoteLimit& limit = *passed.limits[0];
    ASSERT_EQ(server_.ask({ "CONFIG", "SET", "min-replicas-to-write", "1" }), "OK");
    ratelimit::settle(*client_, limit, { 10, limit.taken_at, limit.state.reset }, 0, 0us);
    EXPECT_FALSE(unsettled());
    ASSERT_TRUE(loop_.run_until([this] { return unsettled(); })) << "it is tried again";
    ASSERT_EQ(server_.ask({ "CONFIG", "SET", "min-replicas-to-write", "0" }), "OK");

    Request& refused = asked(1);
    ASSERT_TRUE(refused.limits[0]->begins_block);
    begin_block(*client_, *refused.limits[0], 0us, 0us);
    ASSERT_TRUE(loop_.run_until([this] { return owner_.began == 1; }));
    EXPECT_TRUE(loop_.run_until([this] { return !unsettled(); }));
    Request& next = asked(1);
    EXPECT_TRUE(next.state().granted) << "it is returned, and the key is not blocked";
}

TEST_P(Settlements, a_key_is_spared_for_the_latest_of_the_losses_of_one_turn)
{
    policy_.block = 1h;
    const microseconds noon{ 1'795'500'000s };
    const microseconds day = policy_.counted_at_most();
    RemoteLimit& limit = *asked(1, noon).limits[0];
    for (const microseconds lost : { noon, noon + 5 * day, noon + 2 * day }) {
        limit.now = lost;
        spare(*client_, limit);
    }
    ASSERT_TRUE(loop_.run_until([this] { return !unsettled(); }));
    ASSERT_FALSE(owner_.refunds.empty()) << "its block is lifted";
    EXPECT_EQ(owner_.refunds.back(), key_);
    EXPECT_TRUE(asked(1, noon + 6 * day - 1s).limits[0]->spared);
    EXPECT_FALSE(asked(1, noon + 6 * day + 1min).limits[0]->spared);
}

TEST_P(Settlements, a_refund_that_redis_refuses_after_the_timeout_is_made_later)
{
    Request& request = asked(3);
    server_.ask({ "SCRIPT", "FLUSH" });
    server_.pause();
    const RemoteLimit& limit = *request.limits[0];
    ratelimit::settle(*client_, limit, { 3, limit.taken_at, limit.state.reset }, 0, loop_.now());
    ASSERT_TRUE(loop_.run_until([this] { return client_->take_failed() == 1; }));
    server_.resume();
    EXPECT_TRUE(counts(0)) << "the reply is NOSCRIPT: nothing was executed";
}

TEST_P(Settlements, a_refund_that_redis_makes_after_the_timeout_is_made_once)
{
    Request& first = ask(3);
    Request& second = asked(3);
    EXPECT_TRUE(first.answered() && second.answered());
    server_.pause();
    const RemoteLimit& limit = *first.limits[0];
    ratelimit::settle(*client_, limit, { 3, limit.taken_at, limit.state.reset }, 0, loop_.now());
    ASSERT_TRUE(loop_.run_until([this] { return client_->take_failed() == 1; }));
    server_.resume();
    EXPECT_TRUE(counts(3));
    loop_.run_for(600ms);  // longer than the pause before a call is sent again
    EXPECT_TRUE(counts(3));
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Settlements, testing::ValuesIn(rate_algorithms), by_name);

}  // namespace
}  // namespace ratelimit

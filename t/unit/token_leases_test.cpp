// Tokens that Redis granted in advance, on nginx's slab memory.

#include "slab_zone.h"

namespace ratelimit {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr microseconds start = seconds{ 1000 };

class TokenLeasesTest : public testing::Test {
protected:
    TokenLeases::Answer spend(const KeyedRequest& request, microseconds now)
    {
        return leases_.spend(request, policy_, 10, now);
    }
    void spend_often(int times, const KeyedRequest& request, microseconds now)
    {
        for (int i = 0; i < times; ++i) {
            spend(request, now);
        }
    }
    bool spends(const KeyedRequest& request, microseconds now)
    {
        return spend(request, now).state.has_value();
    }
    /// Adds a lease: a call sent at `sent` was granted these requests beyond its own, and 50 remain
    /// in Redis.
    void add(std::int64_t left, microseconds sent, const KeyedRequest& request)
    {
        RunReply answer;
        answer.taken = left + 1;
        answer.admits_next = true;
        answer.remaining = 50;
        answer.reset = seconds{ 30 };
        leases_.add(request, policy_, answer, left, sent);
    }
    void add(std::int64_t left, microseconds sent) { add(left, sent, request_); }
    /// The number of requests that can use leased tokens at this time.
    int spendable(microseconds now)
    {
        int count = 0;
        while (spends(request_, now)) {
            ++count;
        }
        return count;
    }

    Policy policy_{ Algorithm::sliding_window_log, { 100, seconds{ 60 } }, {}, {} };
    TestZone zone_;
    TokenLeases leases_ = zone_.memory().leases();
    const KeyedRequest request_{ "key", 0x1234, 1 };
};

TEST_F(TokenLeasesTest, tokens_are_used_one_by_one_until_none_is_left)
{
    EXPECT_FALSE(spends(request_, start));
    add(3, start);
    for (int left = 2; left >= 0; --left) {
        const auto answer = spend(request_, start + milliseconds{ 100 });
        ASSERT_TRUE(answer.state);
        EXPECT_TRUE(answer.state->granted);
        EXPECT_EQ(answer.state->remaining, 50 + left);
        EXPECT_EQ(answer.state->reset, seconds{ 30 } - milliseconds{ 100 });
        EXPECT_EQ(answer.source.sent, start);
        EXPECT_EQ(answer.source.expires, start + seconds{ 1 });
    }
    EXPECT_FALSE(spends(request_, start + milliseconds{ 100 }));
}

TEST_F(TokenLeasesTest, a_request_uses_tokens_for_its_whole_cost_or_none)
{
    const KeyedRequest three{ "key", 0x1234, 3 };
    add(2, start, three);  // 6 tokens
    EXPECT_TRUE(spends(request_, start));
    EXPECT_TRUE(spends(three, start));
    EXPECT_FALSE(spends(three, start)) << "only two tokens are left";
    EXPECT_EQ(spendable(start), 2);
}

TEST_F(TokenLeasesTest, tokens_expire_a_second_after_their_call_was_sent)
{
    add(5, start);
    EXPECT_TRUE(spends(request_, start + seconds{ 1 } - microseconds{ 1 }));
    EXPECT_FALSE(spends(request_, start + seconds{ 1 }));
}

TEST_F(TokenLeasesTest, tokens_of_a_fixed_window_expire_with_it)
{
    policy_.algorithm = Algorithm::fixed_window;
    add(5, start);
    EXPECT_TRUE(spends(request_, start + seconds{ 29 }));
    EXPECT_FALSE(spends(request_, start + seconds{ 30 }));
}

TEST_F(TokenLeasesTest, a_clock_that_was_set_back_ends_a_lease)
{
    add(5, start);
    EXPECT_FALSE(spends(request_, start - seconds{ 1 }));
    EXPECT_FALSE(spends(request_, start));
}

// A worker reads the clock, and stands still. Meanwhile another one calls Redis, and has its
// answer.
TEST_F(TokenLeasesTest, a_request_with_an_earlier_time_than_the_call_spends_its_tokens)
{
    const auto earlier = start - milliseconds{ 50 };
    add(5, start);
    EXPECT_EQ(spendable(earlier), 5);
    EXPECT_FALSE(spends({ "other", 0x1234, 1 }, earlier));  // this removes what has expired
    add(2, start);
    EXPECT_FALSE(spends({ "third", 0x1234, 1 }, earlier));
    EXPECT_EQ(spendable(start), 2);
}

TEST_F(TokenLeasesTest, a_request_with_an_earlier_time_than_the_period_does_not_end_it)
{
    spend_often(6, request_, start);
    EXPECT_EQ(spend(request_, start - milliseconds{ 50 }).worth_leasing, 6);
    EXPECT_EQ(spend(request_, start - seconds{ 1 }).worth_leasing, 0) << "the clock was set back";
}

TEST_F(TokenLeasesTest, tokens_of_an_earlier_call_are_used_first)
{
    add(2, start);
    add(3, start + milliseconds{ 500 });
    EXPECT_EQ(spend(request_, start + milliseconds{ 600 }).source.sent, start);
    EXPECT_EQ(spend(request_, start + milliseconds{ 600 }).source.sent, start);
    EXPECT_EQ(spendable(start + seconds{ 1 }), 3);
}

TEST_F(TokenLeasesTest, tokens_of_an_earlier_call_expire_first)
{
    add(2, start);
    add(3, start + milliseconds{ 500 });
    EXPECT_EQ(spendable(start + milliseconds{ 1100 }), 3);
}

TEST_F(TokenLeasesTest, tokens_of_two_earlier_calls_expire_with_the_first_of_these)
{
    add(2, start);
    add(3, start + milliseconds{ 300 });
    add(4, start + milliseconds{ 600 });
    EXPECT_EQ(spendable(start + milliseconds{ 1000 }), 4);
}

TEST_F(TokenLeasesTest, a_refunded_token_can_be_used_again)
{
    add(1, start);
    const auto answer = spend(request_, start);
    EXPECT_FALSE(spends(request_, start));
    leases_.refund(request_, answer.source);
    EXPECT_EQ(spendable(start + milliseconds{ 900 }), 1);
}

TEST_F(TokenLeasesTest, a_refunded_token_expires_with_its_own_lease_and_not_with_a_later_one)
{
    add(1, start);
    const auto answer = spend(request_, start);
    add(2, start + milliseconds{ 800 });
    leases_.refund(request_, answer.source);
    EXPECT_EQ(spendable(start + milliseconds{ 1100 }), 2);
    leases_.refund(request_, answer.source);
    EXPECT_EQ(spendable(start + milliseconds{ 1100 }), 0);
}

TEST_F(TokenLeasesTest, a_refund_to_a_key_without_a_lease_is_dropped)
{
    leases_.refund(request_, { start, start + seconds{ 1 } });
    EXPECT_EQ(zone_.memory().keys(), 0U);
    EXPECT_FALSE(spends(request_, start));
    leases_.refund(request_, { start, start + seconds{ 1 } });
    EXPECT_FALSE(spends(request_, start)) << "a key without a lease";
}

TEST_F(TokenLeasesTest, the_number_worth_leasing_is_that_of_the_keys_requests_in_a_second)
{
    EXPECT_EQ(spend(request_, start).worth_leasing, 0) << "the first request";
    for (int i = 1; i <= 6; ++i) {
        EXPECT_EQ(spend(request_, start + milliseconds{ 100 * i }).worth_leasing, i);
    }
    // Half of the seven of the last period, and none of this one yet.
    EXPECT_EQ(spend(request_, start + milliseconds{ 1500 }).worth_leasing, 3);
    EXPECT_EQ(spend(request_, start + seconds{ 5 }).worth_leasing, 0);
    spend_often(30, request_, start + seconds{ 5 });
    EXPECT_EQ(spend(request_, start + seconds{ 5 }).worth_leasing, 10) << "lease=10";
}

TEST_F(TokenLeasesTest, a_lease_is_renewed_when_half_of_what_a_busy_key_needs_is_used)
{
    spend_often(20, request_, start);
    add(10, start);
    for (int left = 9; left >= 6; --left) {
        EXPECT_EQ(spend(request_, start).worth_leasing, 0) << left;
    }
    EXPECT_EQ(spend(request_, start).worth_leasing, 5) << "so that there are ten again";
    EXPECT_EQ(spend(request_, start).worth_leasing, 6) << "none was begun";
}

TEST_F(TokenLeasesTest, a_lease_is_renewed_when_half_of_its_time_is_over)
{
    spend_often(20, request_, start);
    add(9, start);
    EXPECT_EQ(spend(request_, start + milliseconds{ 499 }).worth_leasing, 0);
    EXPECT_EQ(spend(request_, start + milliseconds{ 500 }).worth_leasing, 3) << "7 of 10 are left";
    policy_.algorithm = Algorithm::fixed_window;
    const KeyedRequest window{ "window", 0x1234, 1 };
    spend_often(20, window, start + seconds{ 20 });
    add(10, start, window);
    EXPECT_EQ(spend(window, start + seconds{ 20 }).worth_leasing, 0) << "it ends with its window";
}

TEST_F(TokenLeasesTest, a_lease_of_a_key_that_is_not_busy_is_not_renewed)
{
    add(3, start);
    EXPECT_EQ(spend(request_, start).worth_leasing, 0);
    EXPECT_EQ(spend(request_, start + milliseconds{ 900 }).worth_leasing, 0)
        << "one other request, and one token is left for the next";
    EXPECT_EQ(spend(request_, start + milliseconds{ 950 }).worth_leasing, 2);
}

TEST_F(TokenLeasesTest, a_key_is_not_busy_by_requests_that_another_limit_refuses)
{
    add(5, start);
    for (int i = 0; i < 20; ++i) {
        const auto answer = spend(request_, start);
        ASSERT_TRUE(answer.state);
        EXPECT_EQ(answer.worth_leasing, 0);
        leases_.refund(request_, answer.source);
    }
    EXPECT_EQ(spendable(start), 5);
}

TEST_F(TokenLeasesTest, one_renewal_of_a_key_is_under_way_until_it_adds_tokens_or_ends)
{
    const auto soon = start + milliseconds{ 300 };
    EXPECT_FALSE(leases_.begin_renewal(request_, start, soon)) << "there is no lease";
    spend_often(20, request_, start);
    add(4, start);
    EXPECT_GT(spend(request_, start).worth_leasing, 0);
    EXPECT_TRUE(leases_.begin_renewal(request_, start, soon));
    EXPECT_FALSE(leases_.begin_renewal(request_, start, soon));
    EXPECT_EQ(spend(request_, start).worth_leasing, 0);
    EXPECT_GT(spend(request_, soon).worth_leasing, 0) << "it must have ended";
    leases_.end_renewal(request_);
    EXPECT_GT(spend(request_, start).worth_leasing, 0);
    EXPECT_TRUE(leases_.begin_renewal(request_, start, soon));
    EXPECT_FALSE(spends(request_, start));
    EXPECT_EQ(spend(request_, start).worth_leasing, 0) << "its tokens are about to come";
    add(2, start);
    EXPECT_GT(spend(request_, start).worth_leasing, 0);
}

TEST_F(TokenLeasesTest, a_renewal_is_under_way_although_the_lease_has_expired)
{
    spend_often(20, request_, start + milliseconds{ 900 });
    add(10, start);
    EXPECT_TRUE(spends(request_, start + milliseconds{ 900 }));
    EXPECT_TRUE(
        leases_.begin_renewal(request_, start + milliseconds{ 900 }, start + milliseconds{ 1200 }));
    EXPECT_FALSE(spends(request_, start + milliseconds{ 1100 }));
    EXPECT_EQ(spend(request_, start + milliseconds{ 1100 }).worth_leasing, 0);
    EXPECT_GT(spend(request_, start + milliseconds{ 1200 }).worth_leasing, 0);
}

TEST_F(TokenLeasesTest, other_keys_and_policies_do_not_use_a_lease)
{
    add(3, start);
    EXPECT_FALSE(spends({ "key2", 0x1234, 1 }, start));
    EXPECT_FALSE(spends({ "key", 0x1235, 1 }, start));
    EXPECT_EQ(spendable(start), 3);
    add(3, start);
    const std::uint64_t same_tag = 0x1234 + (std::uint64_t{ 1 } << 32U);
    EXPECT_FALSE(spends({ "key", same_tag, 1 }, start)) << "a policy with the same tag";
    EXPECT_FALSE(spends(request_, start)) << "its entry was replaced";
}

TEST_F(TokenLeasesTest, a_key_is_dropped_under_all_policies)
{
    add(3, start);
    add(3, start, { "key", 2, 1 });
    add(3, start, { "other", 2, 1 });
    leases_.forget_key("key");
    EXPECT_FALSE(spends(request_, start));
    EXPECT_FALSE(spends({ "key", 2, 1 }, start));
    EXPECT_TRUE(spends({ "other", 2, 1 }, start));
}

TEST_F(TokenLeasesTest, keys_that_are_no_longer_busy_are_removed_as_others_are_added)
{
    for (int i = 0; i < 50; ++i) {
        add(3, start, { "old " + std::to_string(i), 1, 1 });
    }
    EXPECT_EQ(zone_.memory().keys(), 50U);
    for (int i = 0; i < 50; ++i) {
        spend({ "new " + std::to_string(i), 1, 1 }, start + seconds{ 3 });
    }
    EXPECT_EQ(zone_.memory().keys(), 50U);
    EXPECT_EQ(zone_.memory().evictions(), 0U);
}

TEST_F(TokenLeasesTest, full_memory_evicts_the_least_recently_used_leases)
{
    constexpr int count = 1000;
    const auto key = [](int i) { return "key " + std::to_string(i); };
    for (int i = 0; i < count; ++i) {
        add(count, start, { key(i), 1, 1 });
        ASSERT_TRUE(spends({ key(0), 1, 1 }, start)) << "it is used all the time";
    }
    const auto kept = static_cast<int>(zone_.memory().keys());
    EXPECT_LT(kept, count / 2);
    for (int i = count - 1; i > count - kept; --i) {
        ASSERT_TRUE(spends({ key(i), 1, 1 }, start)) << i;
    }
    EXPECT_FALSE(spends({ key(count - kept - 1), 1, 1 }, start));
}

}  // namespace
}  // namespace ratelimit

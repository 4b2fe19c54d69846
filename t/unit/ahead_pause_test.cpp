// When the units of a busy key with ahead= are reported.

#include "check/ahead_units.h"
#include "holding_fixture.h"

namespace ratelimit {
namespace {

class AheadPause : public HoldingTest, public LimitOwner {
protected:
    static constexpr std::int64_t most = 100;

    void SetUp() override
    {
        HoldingTest::SetUp();
        limit_.redis_key = "{k}";
        limit_.owner = this;
        limit_.policy = { Algorithm::fixed_window, { 1'000'000, 24h }, {}, {}, {} };
        limit_.scripts.charge = load(charge_script(Algorithm::fixed_window));
        units_.emplace(
            of_.client, +[]() noexcept { return virtual_now; });
    }
    void TearDown() override
    {
        units_.reset();
        HoldingTest::TearDown();
    }

    void let_in(std::int64_t units)
    {
        AheadReport* const report =
            units_->prepare(limit_, most, units_->hash_of(limit_.redis_key));
        ASSERT_NE(report, nullptr);
        units_->add(*report, units);
    }
    std::size_t reports() { return messages().size(); }
    void answer_report()
    {
        ASSERT_EQ(reports(), 1U);
        answer(of_, messages().begin());
    }

    Worker& of_ = add_worker();
    RemoteLimit limit_;
    std::optional<AheadUnits> units_;

private:
    std::list<Message>& messages() { return of_.client.messages; }
};

TEST_F(AheadPause, what_came_while_a_report_was_under_way_waits_until_the_pause_ends)
{
    let_in(1);
    EXPECT_EQ(reports(), 1U);
    let_in(2);
    EXPECT_EQ(reports(), 1U) << "one call in flight";
    answer_report();
    let_in(3);
    of_.loop.fire();
    EXPECT_EQ(reports(), 0U);
    virtual_now += 10ms;
    of_.loop.fire();
    answer_report();
    EXPECT_EQ(units_->unanswered("{k}"), 0);
    EXPECT_TRUE(units_->idle());
}

TEST_F(AheadPause, half_of_n_does_not_wait)
{
    let_in(1);
    let_in(most / 2 - 1);
    answer_report();
    EXPECT_EQ(reports(), 0U);
    let_in(1);
    answer_report();
    let_in(1);
    let_in(most / 2);
    answer_report();
    EXPECT_EQ(reports(), 1U);
    answer_report();
    EXPECT_TRUE(units_->idle());
}

TEST_F(AheadPause, a_call_that_follows_finds_all_counted)
{
    let_in(1);
    let_in(2);
    answer_report();
    EXPECT_EQ(reports(), 0U);
    units_->send_waiting("{k}");
    answer_report();
    virtual_now += 10ms;
    of_.loop.fire();
    EXPECT_EQ(reports(), 0U) << "once";
    EXPECT_TRUE(units_->idle());
}

TEST_F(AheadPause, what_waits_when_the_process_exits_is_sent_by_another_client)
{
    let_in(1);
    let_in(2);
    answer_report();
    units_->close();
    EXPECT_EQ(reports(), 0U);
    Worker& last = add_worker();
    last.client.outbox().take(of_.client.outbox());
    wait(last, 2ms);
    ASSERT_EQ(last.client.messages.size(), 1U);
    answer(last, last.client.messages.begin());
    EXPECT_TRUE(units_->idle());
    EXPECT_TRUE(last.client.outbox().empty());
}

}  // namespace
}  // namespace ratelimit

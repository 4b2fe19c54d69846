// Checks that go on and on allocate nothing from the heap but what hiredis does (by malloc): what
// they need is used again.

#include "allocation_count.h"
#include "check/check.h"
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
            request->expires = {};
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

/// Requests of two limits whose keys are on two servers, both of which give back what they took.
class SplitAllocations : public CoalescerTest {
protected:
    struct Split final : Check::Owner {
        void checked() noexcept override { ended = true; }

        std::array<std::string, 2> keys;
        std::array<RemoteLimit, 2> limits;
        std::array<RemoteLimit*, 2> sent{ &limits[0], &limits[1] };
        std::optional<Check> check;
        bool ended = false;
    };

    void SetUp() override
    {
        const auto refund = scripts_.add(refund_script());
        auto options = options_to(one_.port());
        options.servers.push_back(options_to(other_.port()).servers.front());
        options.topology = redis::Topology::ring;
        begin(options);
        for (Split& split : splits_) {
            for (std::size_t i = 0; i < 2; ++i) {
                split.keys[i] = key_at(i);
                RemoteLimit& limit = split.limits[i];
                static_cast<LimitCheck&>(limit) = { split.keys[i], policy_, 1, false, {} };
                limit.coalescer = &*coalescer_;
                limit.scripts = { singles_[0], several_, refund };
            }
        }
    }

    std::string key_at(std::size_t shard)
    {
        std::string key;
        do {
            key = "a key that is longer than short strings are " + std::to_string(keys_++);
        } while (client_->shard_of(key) != shard);
        return key;
    }

    void again()
    {
        for (Split& split : splits_) {
            split.ended = false;
            split.check.emplace(split.sent, split);
            EXPECT_TRUE(split.check->send());
        }
        EXPECT_TRUE(loop_.run_until([this] {
            return std::all_of(
                splits_.begin(), splits_.end(), [](const Split& split) { return split.ended; });
        }));
        for (Split& split : splits_) {
            EXPECT_TRUE(split.check->refund(microseconds{ 0 }));
        }
    }

    RedisServer one_;
    RedisServer other_;
    const Policy policy_{ Algorithm::fixed_window, { 100, std::chrono::hours{ 24 } }, {}, {} };
    std::array<Split, 20> splits_;
    int keys_ = 0;
};

TEST_F(SplitAllocations, none_for_limits_on_two_servers_nor_for_what_is_given_back)
{
    again();
    again();
    again();
    const std::size_t before = allocation_count();
    again();
    EXPECT_EQ(allocation_count() - before, 0U);
    EXPECT_EQ(splits_.back().limits[0].state.remaining, 100) << "which was given back each time";
}

}  // namespace
}  // namespace ratelimit

#pragma once

#include "check/check.h"
#include "coalescer_fixture.h"
#include "redis_server.h"

#include <array>

namespace ratelimit {

/// Requests of two limits whose keys are on two servers of a ring.
class SplitTest : public CoalescerTest {
protected:
    struct SplitRequest final : Check::Owner {
        void checked() noexcept override { ended = true; }

        std::array<std::string, 2> keys;
        std::array<RemoteLimit, 2> limits;
        std::array<RemoteLimit*, 2> sent{ &limits[0], &limits[1] };
        std::optional<Check> check;
        bool ended = false;
    };

    void begin_ring()
    {
        const auto refund = scripts_.add(refund_script());
        auto options = options_to(one_.port());
        options.servers.push_back(server_at(other_.port()));
        begin(options);
        for (SplitRequest& split : splits_) {
            for (std::size_t i = 0; i < 2; ++i) {
                split.keys[i] = key_at(i);
                RemoteLimit& limit = split.limits[i];
                static_cast<LimitCheck&>(limit) = { split.keys[i], policy_, 1, false, {} };
                limit.coalescer = &*coalescer_;
                limit.scripts = { several_, refund, sequence_of(std::vector{ Asked{} }),
                                  SequenceScripts::bit(0) };
            }
        }
    }

    /// A key that is on this server, and on no request yet.
    std::string key_at(std::size_t shard)
    {
        std::string key;
        do {
            key = "a key that is longer than short strings are " + std::to_string(keys_++);
        } while (client_->shard_of(key) != shard);
        return key;
    }

    void check_all()
    {
        for (SplitRequest& split : splits_) {
            split.ended = false;
            split.check.emplace(split.sent, split);
            EXPECT_TRUE(split.check->send());
        }
        EXPECT_TRUE(loop_.run_until([this] {
            return std::all_of(splits_.begin(), splits_.end(), [](const SplitRequest& split) {
                return split.ended;
            });
        }));
    }

    RedisServer one_;
    RedisServer other_;
    const Policy policy_{ Algorithm::fixed_window, { 100, std::chrono::hours{ 24 } }, {}, {} };
    std::array<SplitRequest, 20> splits_;

private:
    int keys_ = 0;
};

}  // namespace ratelimit

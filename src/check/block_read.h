#pragma once

#include "check/remote_limit.h"
#include "redis/call.h"

#include <functional>

namespace ratelimit {

/// Reads the block of a key by a command of one key. While a slot of a cluster is being moved,
/// Redis refuses commands of several keys, and a check has two if the limit has a block.
class BlockRead final : public redis::CommandCall {
public:
    /// What is left of the block by Redis's time `now`, microseconds since the epoch; 0: the key is
    /// not blocked. Empty: there was no answer.
    using Done = std::function<void(std::optional<microseconds> left)>;

    BlockRead(std::string_view block_key, microseconds now, Done done);

    bool on_reply(const redisReply& reply) noexcept override;
    void on_failure(redis::Failure) noexcept override { done_(std::nullopt); }

private:
    const microseconds now_;
    Done done_;
};

/// What is left of a block (lua/block.lua). Foreign values are no block.
microseconds left_of_block(std::string_view record, microseconds now) noexcept;

}  // namespace ratelimit

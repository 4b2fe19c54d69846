#pragma once

#include "check/remote_limit.h"
#include "redis/call.h"

#include <functional>

namespace ratelimit {

/// The record of a key's block (lua/block.lua).
struct BlockState {
    microseconds left{ 0 };  // of the block; 0: the key is not blocked
    bool spared = false;     // no refusal begins a block now
};

/// Reads the block of a key by a command of one key. While a slot of a cluster is being moved,
/// Redis refuses commands of several keys, and a check has two if the limit has a block.
class BlockRead final : public redis::CommandCall {
public:
    /// The block at Redis's time `now`, microseconds since the epoch. Empty: there was no answer.
    using Done = std::function<void(std::optional<BlockState>)>;

    BlockRead(std::string_view block_key, microseconds now, Done done);

    bool on_reply(const redisReply& reply) noexcept override;
    void ended(redis::Fate) noexcept override { done_(std::nullopt); }

private:
    const microseconds now_;
    Done done_;
};

/// A foreign value counts as no record.
BlockState block_state(std::string_view record, microseconds now) noexcept;

}  // namespace ratelimit

#pragma once

#include "limit/policy.h"
#include "redis/call.h"

#include <span>
#include <string>

namespace ratelimit {

// The texts of the scripts, assembled from the files in lua/, which document arguments and replies.

/// One limit of a sequence: what the text of the script depends on.
struct SequenceLimit {
    Algorithm algorithm = Algorithm::sliding_window_counter;
    bool shadow = false;
    bool blocks = false;  // Policy::block is not 0

    friend bool operator==(const SequenceLimit&, const SequenceLimit&) = default;
};

/// Decides requests that each have exactly these limits, in this order (lua/sequence.lua). At least
/// one limit.
std::string sequence_script(std::span<const SequenceLimit> limits);
/// Of its calls.
redis::BatchFormat sequence_format(std::span<const SequenceLimit> limits) noexcept;

/// The sequence of one limit. That of concurrency also states what a holder has: a check of cost 0.
std::string single_script(Algorithm algorithm, bool blocks = false);

/// Decides several limits of these algorithms, for one or more requests with the same keys
/// (lua/several.lua). Slower than sequence_script. The order of `algorithms` does not matter, nor
/// do repetitions: equal sets give equal texts.
std::string several_script(std::span<const Algorithm> algorithms);

/// As several_script, but read-only: replies with the decision as it would be.
std::string peek_script(std::span<const Algorithm> algorithms);

/// Counts the cost of each request even if it exceeds the limit (lua/sequence.lua, with the charge
/// of the algorithm). Arguments and replies are those of single_script; every reply is granted, has
/// no reset before, and `retry` is how many of the units are beyond the limit.
std::string charge_script(Algorithm algorithm);

/// Begins and lifts blocks of keys (lua/block.lua).
std::string block_script();

/// Refunds what checks of any algorithm but concurrency counted (lua/refund.lua).
std::string refund_script();

}  // namespace ratelimit

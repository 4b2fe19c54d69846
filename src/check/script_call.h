#pragma once

#include "limit/policy.h"
#include "limit/refund.h"
#include "limit/verdict.h"
#include "redis/call.h"

#include <optional>
#include <span>
#include <string_view>

namespace ratelimit {

/// A holder's statement about a key with concurrency= (lua/concurrency.lua).
struct Statement {
    std::int64_t holder = 0;  // 0: none
    std::int64_t number = 0;
    std::int64_t base = 0;
    std::int64_t place = -1;
    microseconds longest_delay{ 0 };  // until it is executed
};

/// One limit of one request, as it is sent to a script.
struct LimitCheck {
    std::string_view redis_key{};  // with the prefix; may be binary
    Policy policy;
    std::int64_t cost = 1;  // 0: reads the state and counts nothing
    bool shadow = false;    // does not affect the other limits (several_script only)
    /// Since the epoch, by this node's clock; empty: Redis's clock decides.
    std::optional<microseconds> now{};
    const Statement* states = nullptr;  // of a concurrency limit; null: there is no holder
    std::string_view block_key{};       // of the block; not empty if the policy has one
    bool block_apart = false;           // the block was read by a command of its own (Check)
};

/// KEYS and ARGV of a check by the script of its limits (sequence_script) or the one of any limits
/// (several_script):
///   sequence  KEYS key... block_key..., of each request in turn; ARGV[1] for each limit: now quota
///             window param cost; ARGV[2], for concurrency, its Statement. One packed argument
///             costs Redis less than five for each limit.
///   several   KEYS key... block_key...; ARGV[1] for each limit: algorithm mode now quota window
///             param, and its Statement; ARGV[2] for each run of requests with the same costs:
///             their number, and the cost for each limit
/// mode: whether the limit is a shadow, and where its block is (lua/several.lua). now: microseconds
/// since the epoch, 0: Redis's TIME. window: microseconds. quota: for windows and concurrency less
/// the reserve (Policy::limit), so that a script knows no reserves. param: the capacity less the
/// reserve for token_bucket, leaky_bucket and gcra, the bucket's width in microseconds for
/// sliding_window_buckets, Statement::longest_delay for concurrency, Policy::begin for
/// fixed_window, else 0.
inline constexpr std::size_t numbers_of_limit = 5;
/// Numbers of the answer of a limit (lua/sequence.lua), each a double; at the end of the reply is
/// one more, Redis's time.
inline constexpr std::size_t whole_answer = 5;
constexpr std::size_t answer_numbers(Algorithm algorithm, bool blocks) noexcept
{
    return blocks                       ? whole_answer
        : keeps_arrival_time(algorithm) ? 1
        : counts_at_one_time(algorithm) ? 2
                                        : whole_answer;
}
/// For the script of a sequence of one limit.
constexpr redis::BatchFormat single_format(Algorithm algorithm, bool blocks = false) noexcept
{
    return { .keys = blocks ? 2U : 1U,
             .reply_bytes = answer_numbers(algorithm, blocks) * sizeof(double),
             .shared_bytes = sizeof(double),
             .numbers = numbers_of_limit,
             .own_numbers = counts_at_one_time(algorithm) };
}
/// For charge_script.
inline constexpr redis::BatchFormat charge_format{ .reply_bytes = whole_answer * sizeof(double),
                                                   .shared_bytes = sizeof(double),
                                                   .numbers = numbers_of_limit };
/// For refund_script and block_script.
inline constexpr redis::BatchFormat byte_format{ .reply_bytes = 1 };
/// KEYS of one request, for both kinds of script.
void write_check_keys(std::span<const LimitCheck> checks, redis::ScriptArguments& arguments);
/// Whether the check reads a block.
inline bool blocks(const LimitCheck& check) noexcept
{
    return check.policy.block.count() > 0 && !check.block_apart;
}
/// How many of the limits have a block.
std::size_t count_blocks(std::span<const LimitCheck> checks) noexcept;
void write_sequence_numbers(
    const LimitCheck& check, std::int64_t cost, redis::ScriptArguments& arguments);
/// The own numbers of a limit of a sequence: none if it is no concurrency limit.
void write_holder(const LimitCheck& check, redis::ScriptArguments& arguments);
void write_statement(const Statement& statement, redis::ScriptArguments& arguments);

/// `runs`: Runs::numbers(), or numbers_again().
redis::ArgumentCount several_argument_count(std::span<const LimitCheck> checks) noexcept;
void write_several_arguments(
    std::span<const LimitCheck> checks, std::span<const std::int64_t> runs,
    redis::ScriptArguments& arguments);

/// The numbers of one key of refund_script: algorithm taken reset now quota window param cost.
/// `check` has the policy by which the cost was counted, and the time of the refund.
void write_refund_numbers(
    const LimitCheck& check, const Refund& refund, redis::ScriptArguments& arguments);

/// A statement about the block of a key (lua/block.lua), in microseconds since the epoch by the
/// clock that decided.
struct BlockStatement {
    /// When the request was refused; or units were counted that no request used (negative: from
    /// the time of the statement).
    microseconds at{ 0 };
    microseconds begins{ 0 };  // the block; or for how long the record is kept then
    microseconds ends{ 0 };    // 0: the key is spared, and a block that began meanwhile is lifted
    microseconds lasts{ 0 };   // how long the units count from now on; 0: they are returned
};
/// The numbers of one key of block_script: now, and the statement.
void write_block_numbers(
    std::optional<microseconds> now, const BlockStatement& statement,
    redis::ScriptArguments& arguments);

}  // namespace ratelimit

#include "check/settlement.h"

#include "check/script_reply.h"

#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace ratelimit {

namespace {

/// How long a settlement is tried.
constexpr redis::milliseconds longest{ 10'000 };

/// A refund, a charge, or a statement about a block; a refund may be followed by such a statement.
/// Each is tried again, for `longest`, if Redis surely did not execute it, and never if it may
/// have. Ended calls are kept in a list and reused with their memory.
class Settlement final : public redis::BatchCall {
public:
    struct Charge {
        std::int64_t cost;
    };
    struct Block {
        BlockStatement statement;
        const BlockOwner* owner;  // null: none begins
    };

    static Settlement& take()
    {
        return unused == nullptr ? *new Settlement : *std::exchange(unused, unused->next_);
    }
    void release() noexcept { next_ = std::exchange(unused, this); }

    template <class What>
    void begin(redis::Client& client, const RemoteLimit& limit, const What& what, microseconds now)
    {
        client_ = &client;
        what_ = what;
        key_ = std::is_same_v<What, Block> ? limit.block_key : limit.redis_key;
        check_ = limit;
        if (check_.now) {
            check_.now = now;  // not the time of the check: an arrival time drains meanwhile
        }
        script_ = script_of(limit.scripts, what);
        began_ = client.now();
        shard_ = limit.shard;
        block_key_.clear();
        routing = {};
        routing.shard = shard_;
    }
    /// When the refund has ended, however it did, a block that began because of it is lifted. Not
    /// earlier: a check that Redis executes between the two may be refused by what is refunded.
    void then_lift(const RemoteLimit& limit)
    {
        block_key_ = limit.block_key;
        block_script_ = limit.scripts.block;
    }

    std::string_view routing_key() const noexcept override { return key_; }
    void on_failure(redis::Failure) noexcept override
    {
        const bool again = !routing.written && client_->now() - began_ < longest;
        routing = {};
        routing.shard = shard_;
        if (!again || !client_->try_again(*this)) {
            client_->count_failed();
            ended();
        }
    }

private:
    static redis::ScriptId script_of(const CheckScripts& scripts, const Refund&) noexcept
    {
        return scripts.refund;
    }
    static redis::ScriptId script_of(const CheckScripts& scripts, const Charge&) noexcept
    {
        return scripts.charge;
    }
    static redis::ScriptId script_of(const CheckScripts& scripts, const Block&) noexcept
    {
        return scripts.block;
    }

    redis::ScriptId script() const noexcept override { return script_; }
    redis::BatchFormat format() const noexcept override
    {
        if (std::holds_alternative<Charge>(what_)) {
            return sequence_format(1, numbers_of(check_.policy.algorithm));
        }
        return std::holds_alternative<Refund>(what_) ? refund_format : block_format;
    }
    void write_keys(redis::ScriptArguments& arguments) const override { arguments.key(key_); }
    void write_numbers(redis::ScriptArguments& arguments) const override
    {
        if (const auto* refund = std::get_if<Refund>(&what_)) {
            write_refund_numbers(check_, *refund, arguments);
        } else if (const auto* block = std::get_if<Block>(&what_)) {
            write_block_numbers(check_.now, block->statement, arguments);
        } else {
            write_sequence_numbers(check_, std::get<Charge>(what_).cost, arguments);
        }
    }
    bool on_part(std::string_view part) noexcept override
    {
        SequenceReply reply;
        if (std::holds_alternative<Charge>(what_) && !read_sequence_reply(part, reply)) {
            return false;
        }
        const auto* block = std::get_if<Block>(&what_);
        if (block != nullptr && block->owner != nullptr && part == "+") {
            block->owner->block_began();
        }
        ended();
        return true;
    }
    void ended() noexcept
    {
        if (block_key_.empty()) {
            release();
        } else {
            lift_block();
        }
    }
    void lift_block() noexcept
    {
        const microseconds taken_at = std::get<Refund>(what_).taken_at;
        what_ = Block{ { taken_at, client_->longest_wait(), {} }, nullptr };
        script_ = block_script_;
        key_.swap(block_key_);
        block_key_.clear();
        if (check_.now) {
            *check_.now += client_->now() - began_ + redis::milliseconds{ 1 };  // rounded up
        }
        began_ = client_->now();
        routing = {};
        routing.shard = shard_;
        if (!client_->send(*this)) {
            on_failure(redis::Failure::connection);
        }
    }

    static inline Settlement* unused = nullptr;

    Settlement* next_ = nullptr;
    redis::Client* client_ = nullptr;
    redis::milliseconds began_{ 0 };
    std::uint32_t shard_ = 0;
    std::string key_;
    std::string block_key_;  // not empty: the refund's, of a block that is to be lifted
    redis::ScriptId block_script_{};
    LimitCheck check_;
    redis::ScriptId script_{};
    std::variant<Refund, Charge, Block> what_;
};

template <class What>
void send(
    redis::Client& client, const RemoteLimit& limit, const What& what, microseconds now,
    bool then_lift = false) noexcept
{
    Settlement* call = nullptr;
    try {
        call = &Settlement::take();
        call->begin(client, limit, what, now);
        if (then_lift) {
            call->then_lift(limit);
        }
        if (!client.send(*call)) {
            call->on_failure(redis::Failure::connection);
        }
    } catch (const std::exception&) {
        // Out of memory: nothing changes in Redis.
        client.count_failed();
        if (call != nullptr && !call->pending()) {
            call->release();
        }
    }
}

/// Whether the last block that this worker began is of the same key and reply. The replies to
/// requests that were decided together come one after another.
bool is_last_begun(const RemoteLimit& limit) noexcept
try {
    static std::string last_key;
    static microseconds last_at{ 0 };
    if (last_at == limit.taken_at && last_key == limit.block_key) {
        return true;
    }
    last_at = limit.taken_at;
    last_key = limit.block_key;
    return false;
} catch (const std::exception&) {
    return false;  // out of memory: one statement more does no harm
}

}  // namespace

void refund(
    redis::Client& client, const RemoteLimit& limit, const Refund& refund,
    microseconds now) noexcept
{
    send(client, limit, refund, now);
}

void take_back(
    redis::Client& client, const RemoteLimit& limit, const Refund& refund,
    microseconds now) noexcept
{
    send(client, limit, refund, now, limit.policy.block.count() > 0);
}

void begin_block(
    redis::Client& client, const RemoteLimit& limit, microseconds later, microseconds now,
    const BlockOwner& owner) noexcept
{
    if (!is_last_begun(limit)) {
        const microseconds at = limit.taken_at;
        const BlockStatement statement{ at, at + later, at + later + limit.policy.block };
        send(client, limit, Settlement::Block{ statement, &owner }, now);
    }
}

void charge(
    redis::Client& client, const RemoteLimit& limit, std::int64_t cost, microseconds now) noexcept
{
    send(client, limit, Settlement::Charge{ cost }, now);
}

}  // namespace ratelimit

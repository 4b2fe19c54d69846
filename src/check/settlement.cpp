#include "check/settlement.h"

#include "base/free_list.h"
#include "check/limit_owner.h"
#include "check/script_reply.h"
#include "redis/call_queue.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace ratelimit {

namespace {

/// How long a settlement is tried.
constexpr redis::milliseconds longest{ 10'000 };

/// A refund, a charge, or a statement about a block; a refund may be followed by such a statement.
/// Each is tried again, for `longest`, if Redis surely did not execute it, and never if it may
/// have; but the statement that a key is spared until it is answered.
class Settlement final : public redis::BatchCall {
public:
    struct Charge {
        std::int64_t cost;
    };
    using What = std::variant<Refund, Charge, BlockStatement>;

    Settlement* next = nullptr;  // of the ReusePool
    static Settlement& take() { return pool().take(); }
    void release() noexcept
    {
        unsettled_.reset();
        pool().give_back(*this);
    }

    /// `ago`: how long ago the wrong count began.
    void begin(
        redis::Client& client, const Receipt& receipt, const What& what, microseconds now,
        redis::milliseconds ago)
    {
        client_ = &client;
        what_ = what;
        ago_ = ago;
        began_ = client.now();
        own(receipt);
        if (receipt_.now) {
            receipt_.now = now;  // not the time of the check: an arrival time drains meanwhile
        }
        lifts_ = Lifts::nothing;
        late_ = false;
        wait_at_exit();
        forget_routing();
    }
    /// When the refund has ended, however it did, a block that began because of it is lifted. Not
    /// earlier: a check that Redis executes between the two may be refused by what is refunded.
    void then_lift() noexcept { lift(Lifts::since_taken); }

    std::string_view routing_key() const noexcept override
    {
        return states() ? receipt_.block_key : receipt_.redis_key;
    }
    /// A refund or charge that is given up, unless Redis answers late that it did not execute it.
    void overdue(redis::PendingCall& reply) noexcept override
    {
        if (!states()) {
            await_late(reply);
        }
        ended(redis::Fate::overdue);
    }
    void ended(redis::Fate fate) noexcept override
    {
        const microseconds tried = client_->now() - began_;
        const bool again = spares() ? tried < std::max<microseconds>(longest, units_count())
                                    : !maybe_executed(fate) && tried < longest;
        forget_routing();
        if (again && may_be_spared() && lifts_ == Lifts::nothing) {
            lift(Lifts::since_tried);
        }
        if (again && client_->try_again(*this, spares())) {
            return;
        }
        if (!late_) {
            client_->count_failed();
        }
        if (may_be_spared()) {
            state_spared(std::get<Refund>(what_).taken_at, units_count());
        } else {
            release();
        }
    }

private:
    /// Never destroyed: the process may end while a client still refers to one.
    static ReusePool<Settlement>& pool()
    {
        static auto& all = *new ReusePool<Settlement>;
        return all;
    }

    /// Which blocks are lifted behind a refund: those of refusals since then.
    enum class Lifts : std::uint8_t {
        nothing,
        since_taken,  // what is refunded was counted
        since_tried,  // the refund was tried first
    };
    void lift(Lifts which) noexcept
    {
        lifts_ = which;
        unsettled_.emplace(client_->unsettled(), receipt_.block_key, age());
    }
    redis::milliseconds age() const noexcept { return client_->now() - began_ + ago_; }
    /// A process that leaves waits for it. That a block begins does not delay other blocks.
    void wait_at_exit() noexcept
    {
        const bool begins = states() && !spares();
        unsettled_.emplace(
            client_->unsettled(), begins ? std::string_view{} : routing_key(), age());
    }
    void own(const Receipt& receipt)
    {
        receipt_ = receipt;
        receipt_.redis_key = redis_key_ = receipt.redis_key;
        receipt_.block_key = block_key_ = receipt.block_key;
        receipt_.key = key_ = receipt.key;
    }
    void forget_routing() noexcept
    {
        routing = {};
        routing.shard = receipt_.shard;
    }

    /// Everything but what the other one states itself: that it is given up, and that the key is
    /// spared.
    void continue_late(const Settlement& other)
    {
        own(other.receipt_);
        client_ = other.client_;
        began_ = other.began_;
        ago_ = other.ago_;
        what_ = other.what_;
        lifts_ = Lifts::nothing;
        late_ = true;
        wait_at_exit();
        forget_routing();
    }
    void await_late(redis::PendingCall& reply) const noexcept
    {
        Settlement* late = nullptr;
        try {
            late = &take();
            late->continue_late(*this);
            reply.goes_to(*late);
        } catch (const std::exception&) {
            if (late != nullptr) {
                late->release();  // out of memory: it is not tried again
            }
        }
    }

    bool states() const noexcept { return std::holds_alternative<BlockStatement>(what_); }
    /// Whether the statement that the key is spared follows if the refund is given up.
    bool may_be_spared() const noexcept
    {
        return std::holds_alternative<Refund>(what_) && !receipt_.block_key.empty() && !late_;
    }
    bool spares() const noexcept
    {
        const auto* block = std::get_if<BlockStatement>(&what_);
        return block != nullptr && block->ends.count() == 0;
    }
    /// Redis may still execute a message after this statement.
    microseconds units_count() const noexcept
    {
        return receipt_.policy.counted_at_most() + client_->longest_wait();
    }

    redis::ScriptId script() const noexcept override
    {
        return states()                             ? receipt_.block
            : std::holds_alternative<Refund>(what_) ? receipt_.refund
                                                    : receipt_.charge;
    }
    redis::BatchFormat format() const noexcept override
    {
        if (std::holds_alternative<Charge>(what_)) {
            return sequence_format(1, numbers_of(receipt_.policy.algorithm));
        }
        return std::holds_alternative<Refund>(what_) ? refund_format : block_format;
    }
    void write_keys(redis::ScriptArguments& arguments) const override
    {
        arguments.key(routing_key());
    }
    void write_numbers(redis::ScriptArguments& arguments) const override
    {
        const LimitCheck check{ receipt_.redis_key, receipt_.policy, 0, false, receipt_.now };
        if (const auto* refund = std::get_if<Refund>(&what_)) {
            write_refund_numbers(check, *refund, arguments);
        } else if (const auto* block = std::get_if<BlockStatement>(&what_)) {
            BlockStatement statement = *block;
            if (statement.at.count() < 0) {
                statement.at -= client_->now() - began_;
            }
            write_block_numbers(receipt_.now, statement, arguments);
        } else {
            write_sequence_numbers(check, std::get<Charge>(what_).cost, arguments);
        }
    }
    bool on_part(std::string_view part) noexcept override
    {
        KeyReply reply;
        if (std::holds_alternative<Charge>(what_) && !read_sequence_reply(part, reply)) {
            return false;
        }
        const LimitOwner* owner = receipt_.owner;
        if (owner != nullptr && (std::holds_alternative<Refund>(what_) || spares())) {
            owner->refunded(key_);
        } else if (owner != nullptr && part == "+") {
            owner->block_began();
        }
        if (lifts_ == Lifts::nothing) {
            release();
        } else if (lifts_ == Lifts::since_taken) {
            state_spared(std::get<Refund>(what_).taken_at, microseconds{ 0 });
        } else {
            // It must not be later than the first try, however late Redis executes this.
            const auto tried = client_->now() - began_ + client_->longest_wait();
            state_spared(receipt_.now.value_or(-tried), microseconds{ 0 });
        }
        return true;
    }
    /// Behind the refund. `at`: see BlockStatement. `lasts`: how long the units that it should have
    /// returned still count.
    void state_spared(microseconds at, microseconds lasts) noexcept
    {
        what_ = BlockStatement{ at, client_->longest_wait(), {}, lasts };
        lifts_ = Lifts::nothing;
        unsettled_.emplace(client_->unsettled(), receipt_.block_key, age());
        if (receipt_.now) {
            *receipt_.now += client_->now() - began_ + redis::milliseconds{ 1 };  // rounded up
        }
        ago_ = age();
        began_ = client_->now();
        forget_routing();
        if (!client_->try_send(*this)) {
            ended(redis::Fate::unsent);
        }
    }

    redis::Client* client_ = nullptr;
    redis::milliseconds began_{ 0 };
    redis::milliseconds ago_{ 0 };  // before that
    Receipt receipt_;               // of the texts that follow
    std::string redis_key_;
    std::string block_key_;
    std::string key_;
    What what_;
    Lifts lifts_ = Lifts::nothing;
    bool late_ = false;  // another one gave it up, because no reply came in time
    std::optional<redis::Unsettled> unsettled_;
};

void send(
    redis::Client& client, const Receipt& receipt, const Settlement::What& what, microseconds now,
    redis::milliseconds ago = redis::milliseconds{ 0 }, bool then_lift = false) noexcept
{
    Settlement* call = nullptr;
    try {
        call = &Settlement::take();
        call->begin(client, receipt, what, now, ago);
        if (then_lift) {
            call->then_lift();
        }
        if (!client.send(*call)) {
            call->ended(redis::Fate::unsent);
        }
    } catch (const std::exception&) {
        // Out of memory: nothing changes in Redis.
        client.count_failed();
        if (call != nullptr && !call->pending()) {
            call->release();
        }
    }
}

/// The last statement of a kind. Requests that were decided together make the same, one after
/// another.
class LastStated {
public:
    /// Whether it is of the same key and time. If not, this is the last one from now on.
    bool is(std::string_view key, microseconds at) noexcept
    try {
        if (at_ == at && key_ == key) {
            return true;
        }
        at_ = at;
        key_ = key;
        return false;
    } catch (const std::exception&) {
        return false;  // out of memory: one statement more does no harm
    }

private:
    std::string key_;
    microseconds at_{ 0 };
};

/// The last statement that a key is spared.
class LastSpared {
public:
    /// Whether it was made in this turn and says as much: of units that were counted no later than
    /// `at`, and that they count until `ends`. If not, this is the last one from now on.
    bool covers(
        std::string_view key, microseconds turn, microseconds at, microseconds ends) noexcept
    {
        if (last_.is(key, turn) && at_ <= at && ends <= ends_) {
            return true;
        }
        at_ = at;
        ends_ = ends;
        return false;
    }

private:
    LastStated last_;
    microseconds at_{ 0 };
    microseconds ends_{ 0 };
};

}  // namespace

void refund(
    redis::Client& client, const Receipt& receipt, const Refund& refund, microseconds now) noexcept
{
    send(client, receipt, refund, now);
}

void take_back(
    redis::Client& client, const Receipt& receipt, const Refund& refund, microseconds now,
    redis::milliseconds ago) noexcept
{
    send(client, receipt, refund, now, ago, receipt.policy.block.count() > 0);
}

void spare(redis::Client& client, const Receipt& receipt, redis::milliseconds ago) noexcept
{
    static LastSpared last;
    if (receipt.policy.block.count() == 0 || receipt.cost == 0) {
        return;
    }
    const microseconds wait = client.longest_wait();
    // It was sent at most once more, after its connection was lost.
    const microseconds at = receipt.now.value_or(-(2 * wait + ago));
    const microseconds lasts = receipt.policy.counted_at_most() + wait;
    const microseconds now = receipt.now.value_or(microseconds{ 0 });
    if (!last.covers(receipt.block_key, client.now(), at, now + lasts)) {
        send(client, receipt, BlockStatement{ at, wait, {}, lasts }, now, ago);
    }
}

void begin_block(
    redis::Client& client, const Receipt& receipt, microseconds later, microseconds now) noexcept
{
    static LastStated last;
    if (!last.is(receipt.block_key, receipt.taken_at)) {
        const microseconds at = receipt.taken_at;
        const BlockStatement statement{ at, at + later, at + later + receipt.policy.block, {} };
        send(client, receipt, statement, now);
    }
}

void charge(
    redis::Client& client, const Receipt& receipt, std::int64_t cost, microseconds now,
    redis::milliseconds ago) noexcept
{
    send(client, receipt, Settlement::Charge{ cost }, now, ago);
}

void settle(
    redis::Client& client, const Receipt& receipt, const Refund& counted, std::int64_t cost,
    microseconds now, redis::milliseconds ago) noexcept
{
    if (cost > counted.cost) {
        charge(client, receipt, cost - counted.cost, now, ago);
    } else if (cost < counted.cost) {
        const Refund rest{ counted.cost - cost, counted.taken_at, counted.reset };
        send(client, receipt, rest, now, ago);
    }
}

}  // namespace ratelimit

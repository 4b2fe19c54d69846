#include "check/settlement.h"

#include "base/free_list.h"
#include "check/limit_owner.h"
#include "check/script_reply.h"
#include "redis/call_queue.h"
#include "redis/outbox.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace ratelimit {

namespace {

/// How long a settlement is tried.
constexpr redis::milliseconds longest{ 10'000 };
constexpr redis::milliseconds before_retry{ 500 };  // before it is tried again

/// A refund, a charge, or a statement about a block. Each is tried again, for `longest`, if Redis
/// surely did not execute it, and never if it may have. Only the statement that a key is spared is
/// repeated until it is answered. When a refund has ended, such a statement may follow.
class Settlement final : public redis::Owed {
public:
    struct Charge {
        std::int64_t cost;
    };
    using What = std::variant<Refund, Charge, BlockStatement>;

    Settlement* next = nullptr;  // of the ReusePool
    void release() noexcept
    {
        count_waiting(false);
        outbox().settled(*this);
        unsettled_.reset();
        ReusePool<Settlement>::shared().give_back(*this);
    }

    /// `ago`: how long ago the wrong count began. `lifts`: when the refund has ended in any way, a
    /// block that began because of its units is lifted. Not earlier: a check between the two may be
    /// refused by these units.
    void begin(
        redis::Client& client, const Receipt& receipt, const What& what, microseconds now,
        redis::milliseconds ago, bool lifts)
    {
        join(client.outbox());
        what_ = what;
        ago_ = ago;
        began_ = client.now();
        receipt_ = receipt;
        receipt_.policy.reserve = 0;  // only a check leaves one
        receipt_.redis_key = redis_key_ = receipt.redis_key;
        receipt_.block_key = block_key_ = receipt.block_key;
        receipt_.key = key_ = receipt.key;
        if (receipt_.now) {
            receipt_.now = now;  // not the time of the check: an arrival time drains meanwhile
        }
        lifts_ = Lifts::nothing;
        if (spares() || lifts) {
            lift(Lifts::since_taken);
        }
    }

    std::string_view routing_key() const noexcept override
    {
        return states() ? receipt_.block_key : receipt_.redis_key;
    }

private:
    /// Blocks of refusals since this time are lifted after a refund.
    enum class Lifts : std::uint8_t {
        nothing,
        since_taken,  // the units were counted
        since_tried,  // the refund was tried first
        given_up,     // none: no reply came in time; a late one may be an error
    };

    Terms terms() const noexcept override
    {
        return { receipt_.shard, spares() ? redis::Outbox::spared : redis::Outbox::settlements,
                 Rank::counts, began_ - ago_ };
    }
    redis::milliseconds lapses() const noexcept override
    {
        const auto until = spares() ? std::max<microseconds>(longest, units_count()) : longest;
        return began_ + std::chrono::duration_cast<redis::milliseconds>(until);
    }
    bool lapsed() noexcept override
    {
        const bool over = lapses() <= client().now();
        if (over) {
            give_up();
            release();
        }
        return over;
    }
    void begin_sending() noexcept override { count_waiting(false); }
    /// Counts those that wait. The statements that replace settlements without room have room of
    /// their own. False: too many wait.
    bool count_waiting(bool choice) noexcept
    {
        static constexpr std::size_t most = 20'000;
        static std::size_t waiting[2];  // of all clients, with those that are spared
        std::size_t& all = waiting[spares() ? 1 : 0];
        if (choice && all >= (spares() ? 2 * most : most)) {
            return false;
        }
        if (std::exchange(waits_, choice) != choice) {
            all += choice ? 1 : -std::size_t{ 1 };
        }
        return true;
    }

    void on_failure(redis::Fate fate) noexcept override
    {
        const bool again = spares() || !maybe_executed(fate);
        if (again && may_be_spared() && lifts_ == Lifts::nothing) {
            lift(Lifts::since_tried);
        }
        if (again && client().now() < lapses() && count_waiting(true)) {
            outbox().keep(*this, before_retry);
        } else {
            give_up();
            release();
        }
    }
    /// A refund or charge is given up, unless Redis answers late that it did not execute it.
    void on_timeout(redis::PendingCall& reply) noexcept override
    {
        if (states()) {
            on_failure(redis::Fate::overdue);
            return;
        }
        reply.goes_to(*this);
        give_up();
        lifts_ = Lifts::given_up;
        unsettled_.reset();
    }
    void dropped() noexcept override { release(); }
    void give_up() noexcept
    {
        if (lifts_ != Lifts::given_up) {
            client().count_failed();
        }
        if (may_be_spared()) {
            follow(std::get<Refund>(what_).taken_at, units_count());
        }
    }

    void lift(Lifts which) noexcept
    {
        lifts_ = which;
        unsettled_.emplace(client().unsettled(), receipt_.block_key, age());
    }
    redis::milliseconds age() const noexcept { return client().now() - began_ + ago_; }

    bool states() const noexcept { return std::holds_alternative<BlockStatement>(what_); }
    /// Whether the statement that the key is spared follows if the refund is given up.
    bool may_be_spared() const noexcept
    {
        return std::holds_alternative<Refund>(what_) && !receipt_.block_key.empty()
            && lifts_ != Lifts::given_up;
    }
    bool spares() const noexcept
    {
        const auto* block = std::get_if<BlockStatement>(&what_);
        return block != nullptr && block->ends.count() == 0;
    }
    /// Redis may still execute a message after this statement.
    microseconds units_count() const noexcept
    {
        return receipt_.policy.counted_at_most() + client().longest_wait();
    }

    redis::ScriptId script() const noexcept override
    {
        return states()                             ? receipt_.scripts.block
            : std::holds_alternative<Refund>(what_) ? receipt_.scripts.refund
                                                    : receipt_.scripts.charge;
    }
    const redis::BatchFormat& format() const noexcept override
    {
        return std::holds_alternative<Charge>(what_) ? charge_format : byte_format;
    }
    void write_numbers(redis::ScriptArguments& arguments) const override
    {
        if (const auto* refund = std::get_if<Refund>(&what_)) {
            write_refund_numbers(receipt_, *refund, arguments);
        } else if (const auto* block = std::get_if<BlockStatement>(&what_)) {
            BlockStatement statement = *block;
            if (statement.at.count() < 0) {
                statement.at -= client().now() - began_;
            }
            write_block_numbers(receipt_.now, statement, arguments);
        } else {
            write_sequence_numbers(receipt_, std::get<Charge>(what_).cost, arguments);
        }
    }
    bool on_answer(redis::ReplyPart part) noexcept override
    {
        KeyReply reply;
        if (std::holds_alternative<Charge>(what_)
            && !read_whole_reply(part, receipt_.policy, reply)) {
            return false;
        }
        const LimitOwner* owner = receipt_.owner;
        if (owner != nullptr && (std::holds_alternative<Refund>(what_) || spares())) {
            owner->refunded(key_);
        } else if (owner != nullptr && part.own == "+") {
            owner->block_began();
        }
        if (!states() && lifts_ == Lifts::since_taken) {
            follow(std::get<Refund>(what_).taken_at, microseconds{ 0 });
        } else if (lifts_ == Lifts::since_tried) {
            // It must not be later than the first try, however late Redis executes this.
            const auto tried = client().now() - began_ + client().longest_wait();
            follow(receipt_.now.value_or(-tried), microseconds{ 0 });
        }
        release();
        return true;
    }
    void follow(microseconds at, microseconds lasts) noexcept;

    redis::milliseconds began_{ 0 };
    redis::milliseconds ago_{ 0 };  // before that
    Receipt receipt_;               // of the texts that follow
    std::string redis_key_;
    std::string block_key_;
    std::string key_;
    What what_;
    Lifts lifts_ = Lifts::nothing;
    bool waits_ = false;                         // counted
    std::optional<redis::Unsettled> unsettled_;  // the key of the block, while lifts_ says so
};

void send(
    redis::Client& client, const Receipt& receipt, const Settlement::What& what, microseconds now,
    redis::milliseconds ago = redis::milliseconds{ 0 }, bool lifts = false) noexcept
try {
    Settlement& made = ReusePool<Settlement>::shared().take();
    try {
        made.begin(client, receipt, what, now, ago, lifts);
    } catch (const std::exception&) {
        made.release();
        throw;
    }
    client.outbox().send(made);
} catch (const std::exception&) {
    client.count_failed();  // out of memory: nothing changes in Redis
}

/// Behind a refund: the key is spared. `at`: see BlockStatement. `lasts`: how long the units that
/// it should have returned still count.
void Settlement::follow(microseconds at, microseconds lasts) noexcept
{
    const microseconds now = receipt_.now.value_or(microseconds{ 0 }) + client().now() - began_
        + redis::milliseconds{ 1 };  // rounded up
    const BlockStatement statement{ at, client().longest_wait(), {}, lasts };
    send(client(), receipt_, statement, now, age());
}

/// The last statement of a kind. Requests that were decided together make the same, one after
/// another.
class LastStated {
public:
    /// Whether it is of the same key and `turn`, and covers units counted at `at` that count until
    /// `ends`. If not, this becomes the last one.
    bool covers(
        std::string_view key, microseconds turn, microseconds at = {},
        microseconds ends = {}) noexcept
    try {
        if (turn_ == turn && key_ == key && at_ <= at && ends <= ends_) {
            return true;
        }
        key_ = key;  // first: without memory the last one stays
        turn_ = turn;
        at_ = at;
        ends_ = ends;
        return false;
    } catch (const std::exception&) {
        return false;  // out of memory: one statement more does no harm
    }

private:
    std::string key_;
    microseconds turn_{ 0 };
    microseconds at_{ 0 };
    microseconds ends_{ 0 };
};

}  // namespace

void take_back(
    redis::Client& client, const Receipt& receipt, const Refund& refund, microseconds now,
    redis::milliseconds ago) noexcept
{
    send(client, receipt, refund, now, ago, receipt.policy.block.count() > 0);
}

void spare(redis::Client& client, const Receipt& receipt, redis::milliseconds ago) noexcept
{
    static LastStated last;
    if (receipt.scripts.block == redis::ScriptId::none || receipt.cost == 0) {
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
    if (!last.covers(receipt.block_key, receipt.taken_at)) {
        const microseconds at = receipt.taken_at;
        const BlockStatement statement{ at, at + later, at + later + receipt.policy.block, {} };
        send(client, receipt, statement, now);
    }
}

void settle(
    redis::Client& client, const Receipt& receipt, const Refund& counted, std::int64_t cost,
    microseconds now, redis::milliseconds ago) noexcept
{
    if (cost > counted.cost) {
        send(client, receipt, Settlement::Charge{ cost - counted.cost }, now, ago);
    } else if (cost < counted.cost) {
        const Refund rest{ counted.cost - cost, counted.taken_at, counted.reset };
        send(client, receipt, rest, now, ago);
    }
}

}  // namespace ratelimit

#pragma once

#include "base/entry_table.h"
#include "base/list.h"
#include "check/script_call.h"
#include "redis/client.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace ratelimit {

class Holdings;

/// The format of a statement's call.
inline constexpr redis::BatchFormat statement_format = single_format(Algorithm::concurrency);

/// The units that requests of this worker hold of one key with concurrency=, and the units that
/// Redis knows.
///
/// Redis is not sent changes but statements (lua/concurrency.lua). Each check of the key is one. If
/// Redis may know another number than is held, a statement is repeated until it is answered. The
/// messages that are in flight together are parts of one statement. It is complete when all of them
/// have ended; only then the next one begins, so that a statement never overlaps with an earlier
/// one whose grants are not known.
class Holding final : private redis::Owed, public Link<Holding> {
public:
    /// Waits for the end of the statement in flight, or of what keeps the key.
    class Waiter : public Link<Waiter> {
    public:
        /// Its message may be ready; the waiter has been removed.
        virtual void proceed() noexcept = 0;

    protected:
        ~Waiter() = default;
    };

    /// The units that a message took, by its reply.
    struct Answer {
        bool ignored = false;    // it was late, or not the latest: it took nothing
        std::int64_t units = 0;  // that it took
        std::int64_t place = -1;
        microseconds ahead{ 0 };  // the server's clock, of the monotonic one
    };

    /// The parts of a failed message that Redis may have executed. A check asks for units.
    enum class Executed : std::uint8_t { nothing, statement, check };

    explicit Holding(Holdings& all) noexcept : all_(all) {}

    /// Whether the waiter's message can be sent now. If not, wait() tells when.
    bool ready(const Waiter& waiter) const noexcept
    {
        return (kept_for_ == nullptr || kept_for_ == &waiter)
            && (unanswered_ == 0
                || (state_ == State::open && (!written_ || statement_.base == held_)));
    }
    void wait(Waiter& waiter) noexcept { waiters_.push_back(waiter); }
    /// No check of another waiter is sent until the key is let go.
    void keep_for(const Waiter& waiter) noexcept { kept_for_ = &waiter; }
    /// Asks the waiters, which may send messages, or states what was not stated meanwhile.
    void let_go() noexcept;

    /// Call before a message is sent. After it, exactly one of answered and failed must be called,
    /// and then message_ended. `takes`: it asks for units.
    void begin(bool takes) noexcept;
    /// A message is written now: its statement is fixed.
    void before_write() noexcept override;
    /// The statement of a check that is such a message, when it is written.
    const Statement& statement() const noexcept { return statement_; }
    void answered(const Answer& answer) noexcept;
    void failed(Executed executed) noexcept;
    /// The message has ended. May call waiters, which send messages.
    void message_ended() noexcept;

    /// A call refers to it from enter to leave: meanwhile it is not forgotten.
    void enter() noexcept { ++calls_; }
    void leave() noexcept { --calls_; }

    // Of the EntryTable.
    Holding* next = nullptr;
    std::size_t hash = 0;

private:
    friend class GrantedUnits;
    friend class Holdings;

    /// A request holds units that an answer granted, until it releases them.
    void hold(std::int64_t units) noexcept;
    void release(std::int64_t units) noexcept;

    std::string_view routing_key() const noexcept override { return key_; }
    redis::ScriptId script() const noexcept override { return script_; }
    const redis::BatchFormat& format() const noexcept override { return statement_format; }
    void write_numbers(redis::ScriptArguments& arguments) const override;
    void write_own_numbers(redis::ScriptArguments& arguments) const override;

    Terms terms() const noexcept override;
    milliseconds lapses() const noexcept override;
    bool lapsed() noexcept override;
    void begin_sending() noexcept override;
    bool on_answer(redis::ReplyPart part) noexcept override;
    void on_failure(redis::Fate fate) noexcept override;

    /// The legal states of a key:
    ///
    ///   state     messages in flight   held_   known_                    it is in
    ///   unused    0                    0       -                         no list
    ///   idle      0                    0       0                         Holdings::idle_
    ///   stated    0                    > 0     held_                     Holdings::stated_
    ///   open      all of a statement   any     any                       no list
    ///   ending    the rest of one      any     any                       no list
    ///   owed      0                    any     not held_, or it lapses   the outbox
    ///   freed     0                    any     not 0                     the outbox
    enum class State : std::uint8_t {
        unused,  // not in the table
        idle,    // to be forgotten
        stated,  // to be renewed
        open,    // other messages can become parts of the statement
        ending,  // one of its messages has ended
        owed,    // to be stated again: Redis may count otherwise, or not for long
        freed,   // the same, but nothing is held and Redis may count units
    };
    /// How a statement has ended so far; a later value outweighs an earlier one.
    enum class Outcome : std::uint8_t {
        refused,    // Redis executed nothing
        answered,   // Redis knows statement_.base + taken_
        uncertain,  // Redis may have executed a message that has no answer
    };

    void state_none() noexcept;
    void become(State state) noexcept;
    bool legal() const noexcept;
    void note(Outcome outcome) noexcept { outcome_ = std::max(outcome_, outcome); }
    bool is_over(milliseconds now) const noexcept;
    Rank rank() const noexcept
    {
        return held_ > 0 ? Rank::held : may_count_ ? Rank::counts : Rank::known;
    }
    void ask_waiters() noexcept;
    void settle() noexcept;

    Holdings& all_;
    std::string key_;
    redis::ScriptId script_{};
    std::uint32_t shard_ = 0;

    State state_ = State::unused;
    std::int64_t held_ = 0;
    /// The units that Redis knows. Empty: not certain, a statement is needed.
    std::optional<std::int64_t> known_ = 0;
    bool may_count_ = false;          // whether Redis may count units, by what this worker has sent
    microseconds ahead_{ 0 };         // Answer::ahead of the latest one
    milliseconds counts_since_{ 0 };  // the latest message that Redis may count; monotonic
    milliseconds due_{ 0 };           // in a list of Holdings
    unsigned calls_ = 0;              // that refer to it

    // The statement in flight, or the latest one.
    unsigned unanswered_ = 0;  // messages
    bool written_ = false;     // the number and base of statement_ are its
    Outcome outcome_ = Outcome::answered;
    Statement statement_;
    std::int64_t taken_ = 0;
    List<Waiter> waiters_;
    const Waiter* kept_for_ = nullptr;
};

/// Units that a request holds, until this is destroyed or another value is moved to it.
class GrantedUnits {
public:
    GrantedUnits() = default;
    GrantedUnits(Holding& holding, std::int64_t units) noexcept : holding_(&holding), units_(units)
    {
        holding.hold(units);
    }
    GrantedUnits(GrantedUnits&& other) noexcept
        : holding_(other.holding_), units_(std::exchange(other.units_, 0))
    {
    }
    GrantedUnits& operator=(GrantedUnits&& other) noexcept
    {
        const GrantedUnits before(std::move(*this));
        holding_ = other.holding_;
        units_ = std::exchange(other.units_, 0);
        return *this;
    }
    ~GrantedUnits()
    {
        if (units_ > 0) {
            holding_->release(units_);
        }
    }

    std::int64_t units() const noexcept { return units_; }

private:
    Holding* holding_ = nullptr;
    std::int64_t units_ = 0;
};

/// The Holdings of one zone in one worker.
class Holdings {
public:
    struct Parts {
        redis::Client& client;
        microseconds hold;
        microseconds (*monotonic)() noexcept;
        std::function<void(std::int64_t)> count;  // changes the units that this worker holds
    };

    explicit Holdings(Parts parts);
    Holdings(const Holdings&) = delete;
    Holdings& operator=(const Holdings&) = delete;

    /// The holding of this key. `statements`: the script that states it. Throws if there is no
    /// memory, or if too many keys wait for a statement that frees them.
    Holding& of(std::string_view key, std::uint32_t shard, redis::ScriptId statements);

    /// The number of keys that it remembers.
    std::size_t size() const noexcept { return table_.size(); }
    /// Forgets the keys that are over. True: no other key is left. A takeover may bring back units
    /// that were released within the last `hold`: restate() releases them again.
    bool rest() noexcept;

    /// This server may have an earlier state: repeats the statements of the last `hold`.
    void restate(std::uint32_t server) noexcept;

    /// The process exits: states that nothing is held, behind all earlier statements, since a Redis
    /// that stands still executes them later. The statement is owed until it is answered.
    void close() noexcept;

private:
    friend class Holding;

    milliseconds now() const noexcept;
    void put_into_list(Holding& holding, milliseconds now) noexcept;
    void owe(Holding& holding, milliseconds pause) noexcept;
    void fire() noexcept;
    bool forget_idle(milliseconds now) noexcept;
    void forget_one() noexcept;
    void forget(Holding& holding) noexcept;

    /// One more key makes the worker forget a key without units in Redis. It is refused while this
    /// many keys wait to be freed.
    static constexpr std::size_t most_keys = 65'536;
    static constexpr int most_sent = 500;  // at once
    static constexpr int timers_per_hold = 32;

    redis::Client& client_;
    const milliseconds hold_;
    const Policy policy_;  // of a statement: it asks for nothing, and needs no quota
    microseconds (*const monotonic_)() noexcept;
    const std::function<void(std::int64_t)> count_;
    const std::int64_t id_;
    const microseconds longest_delay_;
    EntryTable<Holding> table_;
    // In the order of due_. A holding of a pending call is not forgotten.
    List<Holding> stated_;
    List<Holding> idle_;
    std::size_t freed_ = 0;    // how many are in State::freed
    const std::size_t group_;  // in the outbox
    std::unique_ptr<Timer> timer_;
    milliseconds last_release_{ 0 };
    bool closed_ = false;
    std::int64_t highest_number_ = 0;
};

/// All units of this holder in Redis have expired.
inline bool Holding::is_over(milliseconds now) const noexcept
{
    return held_ == 0
        && now - counts_since_
        > all_.hold_ + std::chrono::duration_cast<milliseconds>(all_.longest_delay_);
}

}  // namespace ratelimit

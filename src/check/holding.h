#pragma once

#include "base/entry_table.h"
#include "base/list.h"
#include "check/last_statement.h"
#include "redis/client.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace ratelimit {

class Holdings;

/// What the requests of this worker hold of one key with concurrency=, and what Redis knows of it.
///
/// Redis is not sent changes but statements (lua/concurrency.lua). Each check of the key is one,
/// and if Redis may know something else than what is held, another one is sent until it is
/// answered. The messages that are in flight together are parts of one statement. It is complete
/// when all of them have ended; only then the next one begins, so that a statement never overlaps
/// with an earlier one whose grants are not known.
class Holding final : private redis::BatchCall,
                      private StatementSource,
                      private redis::Repeated,
                      public Link<Holding> {
public:
    /// Waits for the end of the statement in flight.
    class Waiter : public Link<Waiter> {
    public:
        /// The statement has ended; the waiter has been removed. `timed_out`: without an answer.
        virtual void proceed(bool timed_out) noexcept = 0;

    protected:
        ~Waiter() = default;
    };

    /// What a message took, by its reply.
    struct Answer {
        bool ignored = false;    // it was late, or not the latest: it took nothing
        std::int64_t units = 0;  // that it took
        std::int64_t place = -1;
        microseconds server_time{ 0 };
    };

    /// What Redis may have executed of a message that failed. A check asks for units.
    enum class Executed : std::uint8_t { nothing, statement, check };

    explicit Holding(Holdings& all) noexcept : all_(all) {}

    /// Whether a message can be sent now. If not, wait() tells when.
    bool ready() const noexcept
    {
        return unanswered_ == 0 || (open_ && (!written_ || base_ == held_));
    }
    void wait(Waiter& waiter) noexcept { waiters_.push_back(waiter); }

    /// Call before a message is sent. After it, exactly one of answered and failed must be called,
    /// and then message_ended. `takes`: it asks for units.
    void begin(bool takes) noexcept;
    /// A message is written now: its statement is fixed.
    void before_write() noexcept override;
    /// The statement of a check that is such a message.
    const StatementSource& source() const noexcept { return *this; }
    void answered(const Answer& answer) noexcept;
    void failed(Executed executed) noexcept;
    /// The message has ended. May call waiters, which send messages.
    void message_ended(bool timed_out) noexcept;

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
    redis::BatchFormat format() const noexcept override { return statement_format; }
    void write_keys(redis::ScriptArguments& arguments) const override { arguments.key(key_); }
    void write_numbers(redis::ScriptArguments& arguments) const override;
    bool on_part(std::string_view part) noexcept override;
    void ended(redis::Fate fate) noexcept override;

    Statement statement() const noexcept override;
    bool is_over() const noexcept;
    /// See redis::Repeats.
    std::size_t rank() const noexcept { return held_ > 0 ? 0 : may_count_ ? 1 : 2; }
    std::uint32_t server() const noexcept override;
    bool repeat() noexcept override { return send(); }
    void settle() noexcept;
    bool send() noexcept;
    void count_in(std::size_t& list) noexcept
    {
        ++list;
        counted_in_ = &list;
    }
    using Ended = redis::RepeatWindow::Ended;

    Holdings& all_;
    std::string key_;
    Policy policy_;
    redis::ScriptId script_{};
    std::uint32_t shard_ = 0;

    std::int64_t held_ = 0;
    /// What Redis knows. Empty: not certain, a statement is needed.
    std::optional<std::int64_t> known_ = 0;
    bool may_count_ = false;  // whether Redis may count units, by what this worker has sent
    std::int64_t place_ = -1;
    std::optional<microseconds> offset_;  // of the server's clock to the monotonic one
    milliseconds counts_since_{ 0 };      // the latest message that Redis may count; monotonic
    milliseconds due_{ 0 };               // in a list of Holdings
    std::size_t* counted_in_ = nullptr;   // a count of Holdings; null: none has it
    unsigned calls_ = 0;                  // that refer to it

    // The statement in flight.
    unsigned unanswered_ = 0;  // messages
    bool open_ = false;        // no message has ended: others can become parts of it
    bool written_ = false;     // number_ and base_ are its
    bool uncertain_ = false;   // a message failed that Redis may have executed
    bool any_answer_ = false;
    bool any_failure_ = false;  // of this statement, or of the latest one: it is sent again
    std::int64_t number_ = 0;
    std::int64_t base_ = 0;
    std::int64_t taken_ = 0;
    List<Waiter> waiters_;
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
    Holding& of(const LimitCheck& check, std::uint32_t shard, redis::ScriptId statements);

    /// The number of keys that it remembers.
    std::size_t size() const noexcept { return table_.size(); }
    /// Whether requests hold something, or Redis may know so.
    bool any() const noexcept { return table_.size() > idle_count_; }

    /// This server may know an earlier state: states again what has been stated within `hold`.
    void restate(std::uint32_t server) noexcept;

    /// The process exits: from now on nothing is held. Sends that once, behind what was sent
    /// before, since a Redis that stands still executes it all later.
    void close() noexcept;
    /// After close(), by another client: sends again what is neither under way nor answered.
    void state_none(redis::Client& client) noexcept { last_.send(client, most_sent); }
    /// Whether all of it is answered.
    bool all_known() const noexcept { return last_.all_answered(); }

private:
    friend class Holding;

    milliseconds now() const noexcept;
    std::int64_t redis_time(const Holding& holding) const noexcept;
    void put_into_list(Holding& holding) noexcept;
    void put_into_failed(Holding& holding, milliseconds pause) noexcept;
    static void uncount(Holding& holding) noexcept;
    static void taken_from_list(Holding& holding) noexcept;
    void restate(Holding& holding) noexcept;
    void watch() noexcept;
    void fire() noexcept;
    void forget_idle() noexcept;
    void forget_one() noexcept;
    void forget(Holding& holding) noexcept;

    /// A further key makes the worker forget one of which Redis counts nothing. It is not accepted
    /// while this number of keys wait to be freed.
    static constexpr std::size_t most_keys = 65'536;
    static constexpr int most_sent = 500;  // at once

    redis::Client& client_;
    const milliseconds hold_;
    microseconds (*const monotonic_)() noexcept;
    const std::function<void(std::int64_t)> count_;
    const std::int64_t id_;
    const microseconds longest_delay_;
    EntryTable<Holding> table_;
    // Each holding without a message in flight is in one of them, in the order of due_, or waits
    // in redis::Repeats to be stated again. A holding of a pending call is not forgotten.
    List<Holding> stated_;  // to be renewed
    List<Holding> idle_;    // nothing is held, and Redis knows it; to be forgotten
    std::size_t idle_count_ = 0;
    std::size_t owed_count_ = 0;  // those of rank 1 that wait
    bool firing_ = false;
    const std::size_t group_;  // in redis::Repeats
    std::unique_ptr<Timer> timer_;
    milliseconds timer_due_ = milliseconds::max();
    milliseconds last_release_{ 0 };
    bool closed_ = false;
    std::int64_t highest_number_ = 0;
    LastStatements last_;
};

inline std::uint32_t Holding::server() const noexcept
{
    return all_.client_.server_of(shard_);
}

/// Whatever Redis knew of this holder does not count any longer.
inline bool Holding::is_over() const noexcept
{
    return held_ == 0
        && all_.now() - counts_since_
        > all_.hold_ + std::chrono::duration_cast<milliseconds>(all_.longest_delay_);
}

}  // namespace ratelimit

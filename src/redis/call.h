#pragma once

#include "redis/reply_limits.h"
#include "redis/script_registry.h"
#include "redis/server_clock.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

struct redisReply;

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// How a call ends that has no reply which can be used.
enum class Fate : std::uint8_t {
    refused,     // by an error of Redis, which executed nothing
    one_by_one,  // the same (TRYAGAIN): calls with one key each would be executed
    failed,      // by another error, or a malformed reply: Redis may have executed it
    unsent,      // no connection: Redis executed nothing
    expired,     // the same, until its deadline
    lost,        // with its connection: Redis may have executed it
    overdue,     // no reply in time: Redis may have executed it, or may yet
};

constexpr bool maybe_executed(Fate fate) noexcept
{
    return fate == Fate::failed || fate == Fate::lost || fate == Fate::overdue;
}

std::string_view describe(Fate fate) noexcept;

struct PendingCall;

/// What each call has in a script that takes any number of calls at once: KEYS are the keys of all
/// calls, ARGV[1] their numbers (ScriptArguments::packed), and its reply a string with as many
/// parts of equal length, in that order.
struct BatchFormat {
    std::size_t keys = 1;
    std::size_t reply_bytes = 0;
    std::size_t shared_bytes = 0;  // at the end of the reply, of all calls
    std::size_t numbers = 0;   // of a call, if ARGV[1] has them once where all are equal; 0: never
    bool own_numbers = false;  // there is ARGV[2]
};

/// A call's part of the reply to a batch.
struct ReplyPart {
    std::string_view own;
    std::string_view shared{};  // of all calls
};

/// A call that may share its command with others of its script and shard, which the script executes
/// one after another.
class BatchPart {
public:
    virtual ~BatchPart() = default;
    virtual ScriptId script() const noexcept = 0;
    /// All calls of a script have the same.
    virtual const BatchFormat& format() const noexcept = 0;
    virtual void write_keys(ScriptArguments& arguments) const = 0;
    virtual void write_numbers(ScriptArguments& arguments) const = 0;
    virtual void write_own_numbers(ScriptArguments& /*arguments*/) const {}
    /// Called instead of Call::on_reply.
    virtual bool on_part(ReplyPart part) noexcept = 0;
};

/// A command that a client sends. The caller owns it. After Client::send, exactly one of on_reply
/// (or on_part), ended and overdue is called, never from inside send; after overdue once more one
/// of the first two, for the call that it names. Each may destroy the call, since the client no
/// longer refers to it. A call may also be destroyed while it is pending: its reply is then read
/// and discarded.
class Call {
public:
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    virtual ~Call();

    /// A key of the call, which decides the server. All its keys must have the same
    /// Client::shard_of.
    virtual std::string_view routing_key() const noexcept = 0;

    /// The call is written now, as it is: nothing changes it meanwhile.
    virtual void before_write() noexcept {}
    /// Writes the command. Called again if the call has to be sent again.
    virtual void write(CommandBuffer& command) const = 0;
    /// Not null: the call is written as a part of a batch, and its reply is a part.
    virtual BatchPart* batch_part() noexcept { return nullptr; }

    /// False: the reply is malformed; ended(failed) follows.
    virtual bool on_reply(const redisReply& reply) noexcept = 0;
    virtual void ended(Fate fate) noexcept = 0;
    /// The call was sent and has no reply in time. First of all, it may name the call that a later
    /// reply goes to (PendingCall::goes_to), itself or another. Otherwise that is discarded.
    virtual void overdue(PendingCall& /*reply*/) noexcept { ended(Fate::overdue); }

    /// The most memory that its reply can need (ReplyLimits).
    virtual std::size_t longest_reply() const noexcept { return usual_reply; }

    /// How many requests fail with the call, for the counters.
    virtual unsigned request_count() const noexcept { return 1; }

    /// Whether the call is sent again if its connection is lost. Redis may then execute it twice.
    bool repeatable = false;
    /// Whether it repeats a call whose connection was lost, which Redis may have executed.
    bool sent_before = false;
    /// Whether a process that exits waits for the call to end.
    bool delays_exit = true;

    bool pending() const noexcept { return pending_ != nullptr; }
    /// Its reply is discarded when it comes, as if the call were destroyed.
    void abandon() noexcept;

    /// The client's notes on the call.
    struct Routing {
        // When it ends at the latest, by the loop's clock. 0: longest_wait after Client::send.
        milliseconds expires{ 0 };
        // Client::shard_of its routing_key. Empty: computed when the call is sent.
        std::optional<std::uint32_t> shard{};
        std::uint8_t redirections = 0;
        bool asking = false;      // preceded by ASKING: the slot is being moved to this server
        bool sent_again = false;  // after a connection was lost
        bool written = false;     // Redis may have executed the call
        Exchange exchange{};      // of the reply, from then on until the call returns
    };
    Routing routing;

    /// Ends a call that has no connection, or no time left for one.
    void end_unanswered() noexcept { ended(routing.written ? Fate::lost : Fate::unsent); }
    void end_expired() noexcept { ended(routing.written ? Fate::overdue : Fate::expired); }

private:
    friend struct PendingCall;
    Call** pending_ = nullptr;  // the pointer to this call in the client's record; null: none
};

/// A call of a command without a script.
class CommandCall : public Call {
public:
    /// `text`: in RESP. `key`: decides the server; empty if that does not matter.
    explicit CommandCall(std::string text, std::string key = {})
        : text_(std::move(text)), key_(std::move(key))
    {
    }

    void write(CommandBuffer& command) const final { command.whole(text_); }
    std::string_view routing_key() const noexcept final { return key_; }

private:
    std::string text_;
    std::string key_;
};

}  // namespace ratelimit::redis

#pragma once

#include "redis/command.h"

#include <chrono>
#include <cstdint>
#include <string_view>

struct redisReply;

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// Index of a script in the client's ScriptRegistry.
enum class ScriptId : std::uint16_t {};

/// Why a call has no reply that can be used.
enum class Failure : std::uint8_t {
    timeout,     // no reply within the client's timeout
    connection,  // could not connect, or the connection was lost; it may have been executed
    /// Redis answered with an error (NOSCRIPT and redirections are dealt with before), or with
    /// something that is no reply to the call.
    error_reply,
    /// A cluster is moving the slot of its keys, which are now apart (TRYAGAIN): it was not
    /// executed, and calls of one key each would be.
    keys_apart,
};

std::string_view describe(Failure failure) noexcept;

struct PendingCall;

/// How a script that takes any number of calls at once has them: KEYS are their keys, its one ARGV
/// their numbers, one call after another (ScriptArguments::packed), and its reply a string with so
/// many bytes for each, in that order.
struct JointScript {
    std::size_t numbers = 0;
    std::size_t reply_bytes = 0;
};

/// One call on its way: owned by the caller from Client::send until its end. Exactly one of
/// on_reply (or on_part) and on_failure is called, never from inside send; afterwards the client
/// has forgotten the call and either may destroy it. A call that is destroyed before is forgotten:
/// its reply is read and dropped, and never taken for another's.
class Call {
public:
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    virtual ~Call();

    virtual ScriptId script() const noexcept = 0;

    /// Not null: the call may go together with others of its script, whose replies must not depend
    /// on each other. Its one key is routing_key; and of what follows, only write_numbers and
    /// on_part are called.
    virtual const JointScript* joint() const noexcept { return nullptr; }
    virtual void write_numbers(ScriptArguments&) const {}
    /// In place of on_reply: its part of the reply.
    virtual void on_part(std::string_view) noexcept {}

    virtual ArgumentCount argument_count() const noexcept = 0;

    /// Writes the call's KEYS, then its ARGV, as many as argument_count says. This and what it may
    /// write must be there as long as the call: it is written again when a script has to be loaded.
    virtual void write(ScriptArguments& arguments) const = 0;

    /// A key of the call, which decides the server that it goes to. All its keys must have the
    /// same Client::place_of.
    virtual std::string_view routing_key() const noexcept = 0;

    /// Another command instead of a script, as RESP.
    virtual std::string_view command() const noexcept { return {}; }

    /// Whether the reply to it has the shape that it must have: called before on_reply and on_part,
    /// and one that has not fails the call.
    virtual bool accepts(const redisReply&) const noexcept { return true; }
    virtual bool accepts_part(std::string_view) const noexcept { return true; }

    /// Whether it may be sent again when its connection was lost, so that Redis may execute it
    /// twice.
    virtual bool repeatable() const noexcept { return false; }

    /// Whether a process that is asked to exit waits for its end.
    virtual bool delays_exit() const noexcept { return true; }

    /// How many checks fail with it, for the counters.
    virtual unsigned stands_for() const noexcept { return 1; }

    virtual void on_reply(const redisReply& reply) noexcept = 0;
    virtual void on_failure(Failure failure) noexcept = 0;

    bool pending() const noexcept { return pending_ != nullptr; }

    /// What a client notes on a call that it passes from server to server.
    struct Travel {
        // By then it has ended. 0: decided when it is sent; one that is sent again keeps it.
        milliseconds expires{ 0 };
        milliseconds waits_until{ 0 };  // for a takeover; 0: it has not waited for one
        std::uint8_t redirections = 0;
        bool asking = false;      // its slot is on its way to that server (ASK)
        bool sent_again = false;  // after a connection was lost
    };
    Travel travel;

private:
    friend struct PendingCall;
    Call** pending_ = nullptr;  // where the client's record of it refers to it, if it has one
};

/// A call of a command without a script.
class CommandCall : public Call {
public:
    /// `text`: as RESP. `key`: that decides its server, if any does.
    explicit CommandCall(std::string text, std::string key = {})
        : text_(std::move(text)), key_(std::move(key))
    {
    }

    ScriptId script() const noexcept final { return {}; }
    ArgumentCount argument_count() const noexcept final { return {}; }
    void write(ScriptArguments&) const final {}
    std::string_view routing_key() const noexcept final { return key_; }
    std::string_view command() const noexcept final { return text_; }

private:
    std::string text_;
    std::string key_;
};

}  // namespace ratelimit::redis

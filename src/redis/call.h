#pragma once

#include "redis/command.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

struct redisReply;

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// Why a call has no reply that can be used.
enum class Failure : std::uint8_t {
    timeout,     // no reply within the client's timeout
    connection,  // could not connect, or the connection was lost; it may have been executed
    /// Redis answered with an error (NOSCRIPT and redirections are dealt with before), or with
    /// something that is no reply to the call.
    error_reply,
    /// A cluster is moving the slot of its keys, which are now apart (TRYAGAIN): it was not
    /// executed, and calls of one key each would be.
    slot_migrating,
};

std::string_view describe(Failure failure) noexcept;

struct PendingCall;

/// A script that takes any number of calls at once: KEYS are their keys, its one ARGV their numbers
/// (ScriptArguments::packed), and its reply a string with as many parts of equal length, in that
/// order.
struct BatchFormat {
    std::size_t numbers = 0;
    std::size_t reply_bytes = 0;
};

/// A call that may share its command with others of its script, whose replies must not depend on
/// each other. Its one key is its routing_key.
class BatchPart {
public:
    virtual ~BatchPart() = default;
    virtual ScriptId script() const noexcept = 0;
    virtual const BatchFormat& format() const noexcept = 0;
    virtual void write_numbers(ScriptArguments& arguments) const = 0;
    /// In place of Call::on_reply: the call's part of the reply.
    virtual bool on_part(std::string_view part) noexcept = 0;
};

/// A command: owned by the caller from Client::send until its end. Exactly one of
/// on_reply (or on_part) and on_failure is called, never from inside send; afterwards the client
/// has forgotten the call and either may destroy it. A call that is destroyed before is forgotten:
/// its reply is read and dropped, and never taken for another's.
class Call {
public:
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    virtual ~Call();

    /// A key of the call, which decides the server that it goes to. All its keys must have the
    /// same Client::shard_of.
    virtual std::string_view routing_key() const noexcept = 0;

    /// Writes the command. What it writes must be there as long as the call: it is written again
    /// when a script has to be loaded.
    virtual void write(CommandBuffer& command) const = 0;
    /// Not null: the call is written as a part of a batch instead, and its reply is one.
    virtual BatchPart* batch_part() noexcept { return nullptr; }

    /// False: the reply does not have the shape that it must have; on_failure follows.
    virtual bool on_reply(const redisReply& reply) noexcept = 0;
    virtual void on_failure(Failure failure) noexcept = 0;

    /// How many checks fail with it, for the counters.
    virtual unsigned request_count() const noexcept { return 1; }

    /// It may be sent again when its connection was lost, so that Redis may execute it twice.
    bool repeatable = false;
    /// A process that exits waits for its end.
    bool delays_exit = true;

    bool pending() const noexcept { return pending_ != nullptr; }

    /// What a client notes on a call that it passes from server to server.
    struct Routing {
        // By then it has ended. 0: decided when it is sent; one that is sent again keeps it.
        milliseconds expires{ 0 };
        // Client::shard_of its routing_key. Empty: looked up when it is sent.
        std::optional<std::uint32_t> shard;
        milliseconds waits_until{ 0 };  // for a takeover; 0: it has not waited for one
        std::uint8_t redirections = 0;
        bool asking = false;      // its slot migrates to that server (ASK)
        bool sent_again = false;  // after a connection was lost
    };
    Routing routing;

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

    void write(CommandBuffer& command) const final { command.whole(text_); }
    std::string_view routing_key() const noexcept final { return key_; }

private:
    std::string text_;
    std::string key_;
};

}  // namespace ratelimit::redis

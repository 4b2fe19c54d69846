#pragma once

#include "redis/command.h"

#include <cstdint>
#include <string_view>

struct redisReply;

namespace ratelimit::redis {

/// Index of a script in the client's ScriptRegistry.
enum class ScriptId : std::uint16_t {};

/// Why a call has no reply that can be used.
enum class Failure : std::uint8_t {
    timeout,      // no reply within the client's timeout
    connection,   // could not connect, or the connection was lost; it may have been executed
    error_reply,  // Redis answered with an error (NOSCRIPT is dealt with before)
};

std::string_view describe(Failure failure) noexcept;

struct PendingCall;

/// One script call on its way: owned by the caller from Client::send until its end. Exactly one of
/// on_reply and on_failure is called, never from inside send; afterwards the client has forgotten
/// the call and either may destroy it. A call that is destroyed before is forgotten: its reply is
/// read and dropped, and never taken for another's.
class Call {
public:
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    virtual ~Call();

    virtual ScriptId script() const noexcept = 0;
    virtual ArgumentCount argument_count() const noexcept = 0;

    /// Writes the call's KEYS, then its ARGV, as many as argument_count says. Called whenever the
    /// call is sent, more than once when a script has to be loaded again, so what it writes must
    /// live as long as the call.
    virtual void write(ScriptArguments& arguments) const = 0;

    virtual void on_reply(const redisReply& reply) noexcept = 0;
    virtual void on_failure(Failure failure) noexcept = 0;

    bool pending() const noexcept { return pending_ != nullptr; }

private:
    friend struct PendingCall;
    PendingCall* pending_ = nullptr;  // the client's record of it while it is on its way
};

}  // namespace ratelimit::redis

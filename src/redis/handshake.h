#pragma once

#include "redis/server_clock.h"
#include "redis/server_options.h"

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct redisReply;

namespace ratelimit::redis {

/// The commands that a new connection sends before its first call (AUTH, SELECT, ROLE, a script
/// that returns TIME, CLIENT SETNAME), and the check of their replies. It has no socket: its owner
/// writes the commands, and passes on the replies in their order.
class Handshake {
public:
    /// `options` and `clock`, which the reply to TIME sets, must outlive this object.
    Handshake(const ServerOptions& options, bool calls_scripts, ServerClock& clock);

    /// The commands of a new connection. Each has one reply.
    std::vector<std::string> begin();

    /// Checks the next reply. Empty: it is as expected; else why the connection cannot be used.
    std::optional<std::string_view> judge(const redisReply& reply);

    bool done() const noexcept { return awaited_.empty(); }
    /// The command whose reply comes next. Empty: none is awaited.
    std::string_view awaited() const noexcept
    {
        return awaited_.empty() ? std::string_view{} : awaited_.front().command;
    }
    /// Why the server closed the connection, with the command that it did not answer.
    std::string closed(std::string_view reason) const noexcept;
    /// There is no connection yet.
    void reset() noexcept { awaited_.clear(); }
    /// The server closed the connection. True: the next one is tried without CLIENT SETNAME, since
    /// proxies close it at a command that they do not know. False: this one was.
    bool leave_name_out() noexcept { return std::exchange(names_itself_, false); }
    /// If no connection could be made, whatever the reason, the next one has its name.
    void name_again(bool failed) noexcept { names_itself_ = names_itself_ || failed; }

private:
    enum class Reply : std::uint8_t { any, good, role, time };
    struct Awaited {
        Reply reply;
        std::string_view command;
    };

    const ServerOptions& options_;
    const bool calls_scripts_;
    ServerClock& clock_;
    microseconds began_{ 0 };  // by the steady clock
    bool names_itself_ = true;
    std::deque<Awaited> awaited_;
};

}  // namespace ratelimit::redis

#pragma once

#include "redis/server_clock.h"
#include "redis/server_options.h"

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct redisReply;

namespace ratelimit::redis {

/// The commands that a new connection sends before its first call (AUTH, SELECT, ROLE, SCRIPT LOAD
/// of a small script, TIME, CLIENT SETNAME), and the check of their replies. It has no socket: its
/// owner writes the commands, and passes on the replies in their order.
class Handshake {
public:
    /// `options` and `clock`, which the reply to TIME sets, must outlive this object.
    Handshake(const ServerOptions& options, bool calls_scripts, ServerClock& clock);

    /// The commands of a new connection. Each has one reply.
    std::vector<std::string> begin();

    /// Checks the next reply. Empty: it is as expected; else why the connection cannot be used.
    std::optional<std::string_view> judge(const redisReply& reply);

    bool done() const noexcept { return replies_left_.empty(); }

private:
    enum class Reply : std::uint8_t { any, good, role, time };

    const ServerOptions& options_;
    const bool calls_scripts_;
    ServerClock& clock_;
    std::deque<Reply> replies_left_;
};

}  // namespace ratelimit::redis

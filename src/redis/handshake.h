#pragma once

#include "redis/script_registry.h"
#include "redis/server_clock.h"
#include "redis/server_options.h"

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct redisReply;

namespace ratelimit::redis {

/// The commands that a new connection sends before its first call (AUTH, SELECT, ROLE, SCRIPT LOAD,
/// TIME, CLIENT SETNAME), and the check of their replies. It has no socket: its owner writes the
/// commands, and passes on the replies in their order.
class Handshake {
public:
    /// All must outlive this object. `clock` is set by the reply to TIME.
    Handshake(const ServerOptions& options, const ScriptRegistry& scripts, ServerClock& clock);

    /// The commands of a new connection. Each has one reply.
    std::vector<std::string> begin();
    /// The commands that load the scripts again, after the server has lost them.
    std::vector<std::string> load_scripts();

    /// Checks the next reply. Empty: it is as expected; else why the connection cannot be used.
    std::optional<std::string_view> judge(const redisReply& reply);

    bool done() const noexcept { return replies_left_.empty(); }

    /// By ScriptId, of the scripts that have been loaded.
    const std::vector<ScriptDigest>& digests() const noexcept { return digests_; }

private:
    enum class Reply : std::uint8_t { any, good, role, digest, time };

    const ServerOptions& options_;
    const ScriptRegistry& scripts_;
    ServerClock& clock_;
    std::deque<Reply> replies_left_;
    std::vector<ScriptDigest> digests_;
    std::size_t loaded_ = 0;  // how many scripts this handshake has loaded
};

}  // namespace ratelimit::redis

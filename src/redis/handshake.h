#pragma once

#include "redis/script_registry.h"
#include "redis/server_options.h"

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct redisReply;

namespace ratelimit::redis {

/// What a new connection says before its first call (AUTH, CLIENT SETNAME, SELECT, ROLE, SCRIPT
/// LOAD), and whether the replies are as they should be. It has no socket: its owner writes the
/// commands, and passes the replies on in their order.
class Handshake {
public:
    /// Both must outlive it.
    Handshake(const ServerOptions& options, const ScriptRegistry& scripts);

    /// The commands of a new connection. Each has one reply.
    std::vector<std::string> begin();
    /// Those that load the scripts again, on a connection whose server has lost them.
    std::vector<std::string> load_scripts();

    /// The next reply. Empty: it is as it should be; else why the connection is of no use.
    std::optional<std::string_view> judge(const redisReply& reply);

    bool done() const noexcept { return replies_left_.empty(); }

    /// By ScriptId, of the scripts that have been loaded.
    const std::vector<ScriptDigest>& digests() const noexcept { return digests_; }

private:
    enum class Reply : std::uint8_t { any, good, role, digest };

    const ServerOptions& options_;
    const ScriptRegistry& scripts_;
    std::deque<Reply> replies_left_;
    std::vector<ScriptDigest> digests_;
    std::size_t loaded_ = 0;  // digests of this handshake
};

}  // namespace ratelimit::redis

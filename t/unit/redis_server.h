#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace ratelimit {

/// A private redis-server on a free port of 127.0.0.1; stopped, and its folder removed, at the end.
class RedisServer {
public:
    /// `conf`: more lines of redis.conf. `bind`: its addresses.
    explicit RedisServer(std::string_view conf = {}, std::string_view bind = "127.0.0.1");
    ~RedisServer();
    RedisServer(const RedisServer&) = delete;
    RedisServer& operator=(const RedisServer&) = delete;

    int port() const noexcept { return port_; }
    std::string socket_path() const { return folder_ + "/redis.sock"; }

    void pause() const;   // SIGSTOP
    void resume() const;  // SIGCONT
    void kill();          // SIGKILL
    void start();         // again, on the same port

    /// Sends one command on a new connection; the reply's text, or its integer as text.
    std::string ask(const std::vector<std::string>& words) const;
    /// The number of calls of a command, by INFO commandstats. Redis 6.2 counts "script|load" and
    /// all others of SCRIPT together.
    long calls(const std::string& command) const;
    /// How often a key was read, by INFO stats.
    long key_reads() const;

private:
    std::string folder_;
    int port_ = 0;
    pid_t pid_ = 0;
    std::string password_;
};

/// A TCP port of 127.0.0.1 that is free.
int free_port();

/// Likewise for a node of a cluster: the port 10000 above, where the cluster's bus is, is free too.
/// (Only Redis 7 and later can have the bus elsewhere.)
int free_cluster_port();

}  // namespace ratelimit

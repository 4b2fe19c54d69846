#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

struct redisReader;

namespace ratelimit {

/// Sends replies that a real Redis does not give on demand. It accepts AUTH, SELECT and
/// TIME, also by EVAL, as Redis does; the reply to each EVALSHA, or EVAL of another script, is the
/// bytes that `answer` returns, and the connection is closed after "close".
class MockServer {
public:
    explicit MockServer(std::function<std::string()> answer);
    /// `map`: the reply to CLUSTER SLOTS, by the port of this server.
    MockServer(std::function<std::string()> answer, std::function<std::string(int)> map);
    MockServer(std::function<std::string()> answer, std::string map);
    ~MockServer();
    MockServer(const MockServer&) = delete;
    MockServer& operator=(const MockServer&) = delete;

    /// Sets the reply to another command. To be called before the first connection.
    void reply_to(const std::string& command, std::string bytes)
    {
        replies_[command] = std::move(bytes);
    }

    /// From now on, TIME has no reply.
    void ignore_time() noexcept { ignores_time_ = true; }

    /// Sends bytes that no client has asked for, to all that are connected.
    void send_to_all(const std::string& bytes)
    {
        const std::lock_guard lock(unasked_guard_);
        unasked_ += bytes;
    }

    int port() const noexcept { return port_; }
    int connections() const noexcept { return connections_; }
    int calls() const noexcept { return calls_; }
    /// How often TIME, with which clients probe, was sent.
    int probes() const noexcept { return probes_; }

private:
    void serve();
    bool serve_commands(int client, redisReader& reader);

    std::function<std::string()> answer_;
    std::function<std::string(int)> map_;
    std::map<std::string, std::string> replies_;  // by command
    std::mutex unasked_guard_;
    std::string unasked_;
    int listener_;
    int port_;
    std::atomic<bool> stop_{ false };
    std::atomic<bool> ignores_time_{ false };
    std::atomic<int> connections_{ 0 };
    std::atomic<int> calls_{ 0 };
    std::atomic<int> probes_{ 0 };
    std::thread thread_;
};

}  // namespace ratelimit

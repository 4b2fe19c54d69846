#pragma once

#include "libevent_loop.h"
#include "redis/make_client.h"
#include "redis_server.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit {

using namespace std::chrono_literals;

/// Records the events of a client.
class Events final : public redis::ClientEvents {
public:
    void server_up(const redis::Endpoint&) noexcept override { ++ups; }
    void server_down(const redis::Endpoint&, std::string_view reason) noexcept override
    {
        ++downs;
        last_reason = reason;
    }
    void counts_may_be_lost(std::uint32_t server) noexcept override
    {
        ++losses;
        last_lost = server;
        if (lost) {
            lost(server);
        }
    }
    void error_reply(const redis::Endpoint&, std::string_view text) noexcept override
    {
        errors.emplace_back(text);
    }

    void servers_known(std::string_view text) noexcept override { known.emplace_back(text); }
    void servers_unknown(std::string_view reason) noexcept override
    {
        unknown.emplace_back(reason);
    }

    int ups = 0;
    int downs = 0;
    int losses = 0;  // events that counts may be lost
    std::uint32_t last_lost = 0;
    std::function<void(std::uint32_t)> lost;
    std::string last_reason;
    std::vector<std::string> errors;
    std::vector<std::string> known;
    std::vector<std::string> unknown;
};

/// Calls a script with one key and one argument, and records the result.
class EchoCall : public redis::Call {
public:
    explicit EchoCall(std::string argument, redis::ScriptId script = {}, std::string key = "key")
        : argument_(std::move(argument)), script_(script), key_(std::move(key))
    {
        repeatable = true;
    }

    void write(redis::CommandBuffer& command) const override
    {
        command.begin_script(script_, { 1, 1 });
        command.key(key_);
        command.arg(argument_);
    }
    std::string_view routing_key() const noexcept override { return key_; }
    bool on_reply(const redisReply& reply) noexcept override
    {
        ++ends;
        answer = std::string(reply.str, reply.len);
        if (then) {
            then();
        }
        return true;
    }
    void ended(redis::Fate why) noexcept override
    {
        ++ends;
        fate = why;
        if (then) {
            then();
        }
    }

    bool ended() const noexcept { return ends > 0; }

    int ends = 0;
    std::optional<std::string> answer;
    std::optional<redis::Fate> fate;
    std::function<void()> then;

private:
    std::string argument_;
    redis::ScriptId script_;
    std::string key_;
};

/// The reply that comes after the timeout has a call of its own.
struct LateEcho : EchoCall {
    LateEcho() : EchoCall("in time") {}
    void overdue(redis::PendingCall& reply) noexcept override
    {
        reply.goes_to(late);
        ended(redis::Fate::overdue);
    }
    EchoCall late{ "late" };
};

/// A client of one server, with a script that returns its argument.
class ClientTest : public testing::Test {
protected:
    static redis::Member server_at(int port)
    {
        return { redis::announced_endpoint("127.0.0.1", static_cast<std::uint16_t>(port)) };
    }

    redis::ClientOptions options_to(int port, redis::Topology topology = redis::Topology::ring)
    {
        redis::ClientOptions options;
        options.servers = { server_at(port) };
        options.topology = topology;
        options.master = "main";  // of sentinels
        options.server.timeout = 10s;
        options.server.connect_timeout = 10s;
        return options;
    }

    redis::Client& start(redis::ClientOptions options)
    {
        if (scripts_.size() == 0) {
            scripts_.add("return ARGV[1]");
        }
        client_ = redis::make_client({ loop_, std::move(options), scripts_, events_ });
        client_->start();
        return *client_;
    }

    redis::Client& start_ready(redis::ClientOptions options)
    {
        start(std::move(options));
        EXPECT_TRUE(loop_.run_until([this] { return events_.ups >= 1; })) << events_.last_reason;
        return *client_;
    }

    /// Sends a call, and waits for its end.
    bool finish(EchoCall& call)
    {
        return client_->send(call) && loop_.run_until([&] { return call.ended(); });
    }

    /// The reply to one call, or the reason of its failure.
    std::string ask(const std::string& argument)
    {
        EchoCall call(argument);
        if (!client_->send(call)) {
            return "not sent";
        }
        EXPECT_TRUE(loop_.run_until([&] { return call.ended(); }));
        EXPECT_EQ(call.ends, 1);
        return call.answer ? *call.answer : std::string(redis::describe(*call.fate));
    }

    void ask_for_a_second()
    {
        const auto end = loop_.now() + 1s;
        while (loop_.now() < end) {
            ask("x");
            loop_.run_for(1ms);
        }
    }

    /// Afterwards no call has to be sent again because its script was missing.
    void load_scripts(const RedisServer& server) const
    {
        for (std::size_t i = 0; i < scripts_.size(); ++i) {
            server.ask({ "SCRIPT", "LOAD", scripts_.at(static_cast<redis::ScriptId>(i)).text });
        }
    }

    /// Waits until this server has no connection of the client.
    bool is_left_alone(RedisServer& server)
    {
        return loop_.run_until([&] {
            const auto clients = server.ask({ "CLIENT", "LIST" });
            return clients.find("name=nginx-ratelimit-") == std::string::npos;
        });
    }

    LibeventLoop loop_;
    redis::ScriptRegistry scripts_;
    Events events_;
    std::unique_ptr<redis::Client> client_;
};

}  // namespace ratelimit

#pragma once

#include "redis/client.h"
#include "redis/server.h"

#include <functional>
#include <string_view>

namespace ratelimit::redis {

/// What a router is made of. All of it must outlive the router.
struct RouterParts {
    EventLoop& loop;
    const ClientOptions& options;
    const ScriptRegistry& scripts;
    ClientEvents& events;
};

/// Brings each call to the server that has its keys: one kind for each topology. The contracts are
/// those of Client, which has one. What its servers tell goes on to the client's owner, and an
/// error reply is the server's failure, unless a kind knows better.
class Router : public ServerOwner {
public:
    explicit Router(const RouterParts& parts) noexcept
        : loop_(parts.loop), options_(parts.options), scripts_(parts.scripts), events_(parts.events)
    {
    }

    virtual void start() = 0;
    virtual bool send(Call& call) = 0;
    virtual void close() noexcept = 0;
    virtual std::uint32_t shard_of(std::string_view key) const noexcept = 0;
    virtual std::uint32_t server_of(std::uint32_t shard) const noexcept = 0;
    virtual bool refuses(std::uint32_t shard) const noexcept = 0;
    virtual void each_server(const std::function<void(Server&)>& visit) = 0;

    void server_up(Server& server) noexcept override { events_.server_up(server.endpoint()); }
    void server_down(Server& server, std::string_view reason) noexcept override
    {
        events_.server_down(server.endpoint(), reason);
    }
    void error_reply(Server& server, std::string_view text) noexcept override
    {
        events_.error_reply(server.endpoint(), text);
    }
    bool take_back(Server&, Call&) noexcept override { return false; }
    ErrorFate fate_of(Server&, Call*, std::string_view) noexcept override
    {
        return ErrorFate::refused;
    }

protected:
    EventLoop& loop_;
    const ClientOptions& options_;
    const ScriptRegistry& scripts_;
    ClientEvents& events_;
};

}  // namespace ratelimit::redis

#include "redis/client.h"

namespace ratelimit::redis {

std::vector<Endpoint> endpoints_of(const ClientOptions& options)
{
    std::vector<Endpoint> endpoints;
    for (const Member& member : options.servers) {
        endpoints.push_back(member.endpoint);
    }
    return endpoints;
}

void Client::start()
{
    state_ = State::open;
    each_server([](Server& server) { server.start(); });
    connect();
}

void Client::close() noexcept
{
    state_ = State::closed;
    disconnect();
    each_server([](Server& server) { server.close(); });
    waiting_.end_all();
}

bool Client::idle()
{
    bool idle = waiting_.empty();
    each_server([&](const Server& server) { idle = idle && server.idle(); });
    return idle;
}

void Client::rest()
{
    if (open() && idle() && outbox_.empty() && unsettled_.empty()) {
        close();
        state_ = State::resting;
    }
}

bool Client::send(Call& call) noexcept
try {
    if (state_ == State::resting) {
        start();
    }
    if (!open()) {
        return false;
    }
    const auto [expires, shard] = std::pair(call.routing.expires, call.routing.shard);
    call.routing = {};
    call.routing.expires = expires.count() != 0 ? expires : now() + longest_wait();
    call.routing.shard = shard ? *shard : shard_of(call.routing_key());
    return route(call);
} catch (const std::exception&) {
    return false;
}

bool Client::reroute(Call& call) noexcept
try {
    return open() && call.routing.shard && route(call);  // a query of one server has none
} catch (const std::exception&) {
    return false;
}

bool Client::wait(Call& call, TakeoverWindow& takeover) noexcept
try {
    if (!open() || !takeover.admits(call, now(), usual_wait())) {
        return false;
    }
    call.routing.redirections = 0;
    call.routing.asking = false;
    waiting_.add(call);
    return true;
} catch (const std::exception&) {
    return false;
}

}  // namespace ratelimit::redis

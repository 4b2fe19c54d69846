#pragma once

#include "loop/event_loop.h"
#include "redis/context.h"
#include "redis/reply_limits.h"
#include "redis/server_options.h"

#include <memory>
#include <string>
#include <string_view>

struct redisReply;

namespace ratelimit::redis {

class SentinelLink;

/// The owner of links. In these functions, it may close a link but not destroy it.
class SentinelLinkOwner {
public:
    virtual ~SentinelLinkOwner() = default;
    virtual void master_is(SentinelLink& link, const Endpoint& master) noexcept = 0;
    /// Called whether or not the sentinel has named the master before.
    virtual void link_lost(SentinelLink& link, std::string_view reason) noexcept = 0;
};

/// A connection to one Redis Sentinel, which names the master and reports changes. The sentinel
/// that makes a failover reports +switch-master only when all replicas follow the new master,
/// seconds after it has made it one (+promoted-slave); the others report +switch-master at once. A
/// sentinel that is silent for a second is probed; if it does not reply, the link is lost. With a
/// sentinel that hangs, calls would stay with a master that has been replaced.
class SentinelLink final : private Context {
public:
    /// `options`: with the sentinel's username and password. They must outlive this object.
    SentinelLink(
        EventLoop& loop, Endpoint sentinel, const ServerOptions& options, std::string master,
        SentinelLinkOwner& owner);

    void start() noexcept;
    void close() noexcept;
    using Context::open;

private:
    static constexpr milliseconds most_silence{ 1000 };

    enum class Awaited : std::uint8_t { authentication, address, subscription, news };

    template <class Body>
    void contained(Body&& body) noexcept;
    void begin();
    void begin_handshake();
    void answered(const redisReply& reply);
    void named(const redisReply& reply);
    void heard(const redisReply& reply);
    void fire() noexcept;
    void probe();
    bool find(std::string_view host, std::string_view port);
    void lose(std::string_view reason) noexcept;
    void connected() noexcept override;
    void disconnected(std::string_view reason) noexcept override { lose(reason); }
    void call_replied(const redisReply& reply) noexcept override;
    std::size_t longest_reply() const noexcept override { return usual_reply; }

    EventLoop& loop_;
    const ServerOptions& options_;
    const Endpoint sentinel_;
    const std::string master_;
    SentinelLinkOwner& owner_;
    std::unique_ptr<Timer> timer_;  // limits the wait for a reply, or the time to the next probe
    Awaited awaited_ = Awaited::address;
    bool probed_ = false;  // since the last reply
    Endpoint found_;       // the master
};

}  // namespace ratelimit::redis

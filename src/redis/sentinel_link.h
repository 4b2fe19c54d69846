#pragma once

#include "loop/event_loop.h"
#include "redis/context.h"
#include "redis/server_options.h"

#include <memory>
#include <string>
#include <string_view>

struct redisReply;

namespace ratelimit::redis {

class SentinelLink;

/// Who has links. It may close them from inside these, but not destroy them.
class SentinelLinkOwner {
public:
    virtual ~SentinelLinkOwner() = default;
    virtual void master_is(SentinelLink& link, const Endpoint& master) noexcept = 0;
    /// The sentinel may or may not have said where the master is before.
    virtual void link_lost(SentinelLink& link, std::string_view reason) noexcept = 0;
};

/// A connection to one Redis Sentinel: asks it where a master is, and hears from then on when that
/// changes (+switch-master). A sentinel that is silent for a second must answer, or the link is
/// lost: one that hangs would leave calls with a master that has handed over.
class SentinelLink final : private ContextOwner {
public:
    /// `options`: username and password are the sentinel's. It must outlive this.
    SentinelLink(
        EventLoop& loop, Endpoint sentinel, const ServerOptions& options, std::string master,
        SentinelLinkOwner& owner);
    ~SentinelLink() override;
    SentinelLink(const SentinelLink&) = delete;
    SentinelLink& operator=(const SentinelLink&) = delete;

    void open() noexcept;
    void close() noexcept;
    bool is_open() const noexcept { return context_ != nullptr; }

private:
    static constexpr milliseconds most_silence{ 1000 };

    struct Hooks;
    enum class Awaited : std::uint8_t { authentication, address, subscription, news };

    void begin();
    void introduce();
    void answered(const redisReply& reply);
    void named(const redisReply& reply);
    void heard(const redisReply& reply);
    void fire() noexcept;
    void probe();
    bool find(std::string_view host, std::string_view port);
    void lose(std::string_view reason, bool freed_by_hiredis = false) noexcept;
    void connected() noexcept override;
    void disconnected(std::string_view reason) noexcept override;
    const ssl_st* tls() const noexcept override { return tls_; }

    EventLoop& loop_;
    const ServerOptions& options_;
    const Endpoint sentinel_;
    const std::string master_;
    SentinelLinkOwner& owner_;
    redisAsyncContext* context_ = nullptr;
    ssl_st* tls_ = nullptr;         // the context's, if it has TLS
    std::unique_ptr<Timer> timer_;  // until it has answered, or is probed
    Awaited awaited_ = Awaited::address;
    bool probed_ = false;  // since its last reply
    Endpoint found_;       // the master
};

}  // namespace ratelimit::redis

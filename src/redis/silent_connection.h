#pragma once

#include "redis/context.h"
#include "redis/deadlines.h"

#include <functional>
#include <list>
#include <utility>

namespace ratelimit::redis {

/// What is left of a connection that had no reply for too long: its socket, and the calls that were
/// written. The server may still execute them, so it stays open until their replies have come, for
/// at most a minute. When packets were lost for some time, TCP may send nothing for as long again
/// (RFC 6298): so long it stays open when the server replies on another connection. Calls keep
/// their deadlines; who wants late replies gets them.
class SilentConnection final : private ContextOwner {
public:
    /// `timed_out`: a call has timed out, which fails then. `replied`: a reply has come, which is
    /// delivered then.
    SilentConnection(
        EventLoop& loop, RecordPool& records, std::function<void(const PendingCall&)> timed_out,
        std::function<void()> replied);
    ~SilentConnection() override { close(); }
    SilentConnection(const SilentConnection&) = delete;
    SilentConnection& operator=(const SilentConnection&) = delete;

    /// Takes over a context and its calls in flight, of which there must be one. `tls`: of the
    /// context; null: no TLS. What it kept before fails.
    void keep(redisAsyncContext& context, const ssl_st* tls, InFlight& in_flight) noexcept;
    /// The server replies on another connection: this one stays open as long again as it was
    /// silent, and first_pause.
    void server_replied() noexcept;
    /// Fails all calls.
    void close() noexcept;
    /// Whether it awaits no reply.
    bool idle() const noexcept { return in_flight_.empty(); }

private:
    static constexpr milliseconds longest{ 60'000 };
    /// Of TCP, before it sends again what was lost. Each further one is twice as long (RFC 6298).
    static constexpr milliseconds first_pause{ 1'000 };

    void connected() noexcept override {}
    void disconnected(std::string_view) noexcept override;
    void call_replied(const redisReply& reply) noexcept override;
    const ssl_st* tls() const noexcept override { return tls_; }
    std::size_t longest_reply() const noexcept override { return in_flight_.longest_reply(); }
    void check_deadlines() noexcept;

    EventLoop& loop_;
    RecordPool& records_;
    std::function<void(const PendingCall&)> timed_out_;
    std::function<void()> replied_;
    redisAsyncContext* context_ = nullptr;
    const ssl_st* tls_ = nullptr;
    std::unique_ptr<Timer> timer_;
    milliseconds silent_since_{ 0 };
    unsigned closed_ = 0;  // how often; a loop that calls out compares it
    InFlight in_flight_;
    Deadlines deadlines_;
};

/// Those of one connection that fell silent one after another.
class SilentConnections {
public:
    /// As those of SilentConnection.
    SilentConnections(
        EventLoop& loop, RecordPool& records, std::function<void(const PendingCall&)> timed_out,
        std::function<void()> replied)
        : loop_(loop),
          records_(records),
          timed_out_(std::move(timed_out)),
          replied_(std::move(replied))
    {
    }

    /// As SilentConnection::keep; of more than `most`, the first is closed. False: no call wants a
    /// late reply, or there is no memory; nothing was taken over.
    bool keep(redisAsyncContext& context, const ssl_st* tls, InFlight& in_flight) noexcept;
    void server_replied() noexcept;
    void close() noexcept;
    bool idle() const noexcept;

private:
    static constexpr std::size_t most = 4;

    EventLoop& loop_;
    RecordPool& records_;
    const std::function<void(const PendingCall&)> timed_out_;
    const std::function<void()> replied_;
    std::list<SilentConnection> all_;  // in the order in which they fell silent
};

}  // namespace ratelimit::redis

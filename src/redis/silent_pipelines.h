#pragma once

#include "redis/pipeline.h"

#include <memory>
#include <vector>

namespace ratelimit::redis {

/// The pipelines of one connection that had no reply for too long, or were left for another address
/// of the server, with the calls that were written to them. The server may still execute those, so
/// a socket stays open until their replies have come, for at most a minute. After packets were lost
/// for some time, TCP may send nothing for as long again (RFC 6298): the socket stays open for that
/// time when the server replies on another connection. Calls keep their deadlines, and get late
/// replies if they want them.
class SilentPipelines {
public:
    explicit SilentPipelines(EventLoop& loop) noexcept : loop_(loop) {}

    /// Keeps a pipeline, which is open; of more than `most`, closes the first. False: no call wants
    /// a late reply, or there is no memory; it is not kept.
    bool keep(const std::shared_ptr<Pipeline>& pipeline) noexcept;
    /// Passes a late reply on.
    void replied(Pipeline& pipeline, const redisReply& reply) noexcept;
    /// The server replies on another connection: they stay open as long again as they were silent,
    /// and first_pause.
    void server_replied() noexcept;
    /// Closes a pipeline, and forgets it.
    void close(Pipeline& pipeline) noexcept;
    void close_all() noexcept;
    bool empty() const noexcept { return all_.empty(); }

private:
    static constexpr std::size_t most = 4;
    static constexpr milliseconds longest{ 60'000 };
    /// Of TCP, before it sends again what was lost. Each further one is twice as long (RFC 6298).
    static constexpr milliseconds first_pause{ 1'000 };

    struct Silent {
        std::shared_ptr<Pipeline> pipeline;
        milliseconds since;
    };

    EventLoop& loop_;
    std::vector<Silent> all_;  // in the order in which they fell silent
};

}  // namespace ratelimit::redis

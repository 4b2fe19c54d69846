#pragma once

#include "redis/alarm.h"
#include "redis/context.h"
#include "redis/in_flight.h"
#include "redis/reconnect_policy.h"

#include <memory>
#include <string>
#include <string_view>

namespace ratelimit::redis {

class Pipeline;

/// The owner of pipelines, which may close the pipeline in each of these functions.
class PipelineOwner {
public:
    virtual ~PipelineOwner() = default;
    virtual void connected(Pipeline& pipeline) noexcept = 0;
    /// A step towards the connection was made.
    virtual void progressed() noexcept = 0;
    /// It is closed, but has its calls still (Loss::failed); or no reply came for too long, though
    /// calls are in flight (Loss::silent). `reason` is valid until this returns.
    virtual void failed(Pipeline& pipeline, std::string_view reason, Loss loss) noexcept = 0;
    /// The reply to the oldest command: the first ones are those of the handshake.
    virtual void replied(Pipeline& pipeline, const redisReply& reply) noexcept = 0;
    /// A call has timed out, which fails then.
    virtual void timed_out(const PendingCall& record) noexcept = 0;
    /// The calls whose deadlines have passed have ended.
    virtual void deadlines_passed() noexcept = 0;
};

/// One socket, from the attempt to connect until it is closed, and the calls that are written to
/// it.
///
/// A call that ends, and an owner that hears of something, may send and destroy calls and close any
/// connection meanwhile. One rule covers that: a pipeline that was closed is never open again, and
/// stays in memory while a function of it runs. So a function that goes on after it has called out
/// asks its pipeline whether it is still open, or its connection whether that is still its
/// pipeline. Calls are moved out of a member before they are ended.
class Pipeline final : public std::enable_shared_from_this<Pipeline>, public Context {
public:
    /// `timeout`, `longest_silence`: of InFlight.
    Pipeline(
        EventLoop& loop, PipelineOwner& owner, milliseconds timeout, milliseconds longest_silence);
    ~Pipeline() override { close(); }

    InFlight& calls() noexcept { return in_flight_; }
    const InFlight& calls() const noexcept { return in_flight_; }
    /// Writes what has been issued, as far as the socket takes it now. It must be open. An error is
    /// found at the end of the turn.
    void flush() noexcept;
    /// The calls of this turn are sent now: their timeouts start.
    void mark_sent() noexcept;
    /// Removes the oldest command, which has its reply. There must be one.
    InFlight::Command take_oldest() noexcept;
    CallQueue take_calls() noexcept;

    /// It fails with Loss::silent at this time, if it is open then, and not before.
    void silent_at(milliseconds time) noexcept;

    /// As free, which leaves the calls, with a reset: commands that the network has not delivered
    /// are never executed.
    void abort() noexcept;
    /// Aborts, and ends the calls.
    void close() noexcept;

private:
    void connected() noexcept override { owner_.connected(*this); }
    void progressed() noexcept override { owner_.progressed(); }
    void disconnected(std::string_view reason) noexcept override;
    void call_replied(const redisReply& reply) noexcept override;
    std::size_t longest_reply() const noexcept override { return in_flight_.longest_reply(); }
    void check_deadlines() noexcept;
    void watch() noexcept;

    EventLoop& loop_;
    PipelineOwner& owner_;
    InFlight in_flight_;
    // For the next deadline, or the end of the longest silence. A process that exits waits for it
    // only while a call wants that.
    Alarm alarm_;
};

}  // namespace ratelimit::redis

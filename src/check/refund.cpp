#include "check/refund.h"

#include "check/coalescer.h"

#include <string>
#include <utility>

namespace ratelimit {

namespace {

/// It is used again after its end, with its memory.
class RefundCall final : public redis::Call {
public:
    static RefundCall& take()
    {
        return unused == nullptr ? *new RefundCall : *std::exchange(unused, unused->next_);
    }
    void release() noexcept { next_ = std::exchange(unused, this); }

    void begin(const RemoteLimit& limit, const Refund& refund, microseconds now)
    {
        key_ = limit.redis_key;
        check_ = limit;
        check_.redis_key = key_;
        check_.cost = refund.cost;
        if (check_.now) {
            check_.now = now;  // not when it was taken: an arrival time has drained since
        }
        script_ = limit.scripts.refund;
        refund_ = refund;
        routing = {};
        routing.shard = limit.shard;
    }

    void write(redis::CommandBuffer& command) const override
    {
        command.begin_script(script_, refund_argument_count);
        Verdict state;
        state.reset = refund_.reset;
        write_refund_arguments(check_, refund_.taken_at, state, command);
    }
    std::string_view routing_key() const noexcept override { return key_; }
    bool on_reply(const redisReply&) noexcept override
    {
        release();
        return true;
    }
    void on_failure(redis::Failure) noexcept override { release(); }

private:
    static inline RefundCall* unused = nullptr;

    RefundCall* next_ = nullptr;
    std::string key_;
    LimitCheck check_;
    redis::ScriptId script_{};
    Refund refund_;
};

}  // namespace

void refund(const RemoteLimit& limit, const Refund& refund, microseconds now) noexcept
{
    RefundCall* call = nullptr;
    try {
        call = &RefundCall::take();
        call->begin(limit, refund, now);
        if (!limit.coalescer->client().send(*call)) {
            call->release();
        }
    } catch (const std::exception&) {
        // Out of memory: it stays counted.
        if (call != nullptr && !call->pending()) {
            call->release();
        }
    }
}

}  // namespace ratelimit

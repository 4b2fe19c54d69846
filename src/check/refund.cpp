#include "check/refund.h"

#include "check/coalescer.h"

#include <string>
#include <utility>

namespace ratelimit {

namespace {

/// One limit's. Used again after its end, with its memory.
class Refund final : public redis::Call {
public:
    /// One that is free.
    static Refund& make()
    {
        return unused == nullptr ? *new Refund : *std::exchange(unused, unused->next_free_);
    }

    void begin(const RemoteCheck& check, microseconds taken_at, microseconds now)
    {
        key_ = check.key;
        check_ = check;
        check_.key = key_;
        if (check_.now) {
            check_.now = now;  // not when it was taken: what has drained since is nobody's
        }
        state_ = *check.state;
        taken_at_ = taken_at;
        travel = {};
    }
    void end() noexcept { next_free_ = std::exchange(unused, this); }

    redis::ScriptId script() const noexcept override { return check_.scripts.refund; }
    redis::ArgumentCount argument_count() const noexcept override { return refund_argument_count; }
    void write(redis::ScriptArguments& arguments) const override
    {
        write_refund_arguments(check_, taken_at_, state_, arguments);
    }
    std::string_view routing_key() const noexcept override { return key_; }
    void on_reply(const redisReply&) noexcept override { end(); }
    void on_failure(redis::Failure) noexcept override { end(); }

private:
    static inline Refund* unused = nullptr;

    Refund* next_free_ = nullptr;
    std::string key_;
    RemoteCheck check_;
    LimitState state_;
    microseconds taken_at_{ 0 };
};

}  // namespace

void refund(const RemoteCheck& check, microseconds taken_at, microseconds now) noexcept
{
    Refund* call = nullptr;
    try {
        call = &Refund::make();
        call->begin(check, taken_at, now);
        if (!check.coalescer->client().send(*call)) {
            call->end();
        }
    } catch (const std::exception&) {
        // Out of memory: it stays counted.
        if (call != nullptr && !call->pending()) {
            call->end();
        }
    }
}

}  // namespace ratelimit

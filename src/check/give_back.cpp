#include "check/give_back.h"

#include "check/coalescer.h"

#include <string>
#include <utility>

namespace ratelimit {

namespace {

/// One limit's. Used again after its end, with its memory.
class GiveBack final : public redis::Call {
public:
    /// One that is free.
    static GiveBack& make()
    {
        return unused == nullptr ? *new GiveBack : *std::exchange(unused, unused->next_free_);
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
        routing = {};
    }
    void end() noexcept { next_free_ = std::exchange(unused, this); }

    void write(redis::CommandBuffer& command) const override
    {
        command.begin_script(check_.scripts.give_back, give_back_argument_count);
        write_give_back_arguments(check_, taken_at_, state_, command);
    }
    std::string_view routing_key() const noexcept override { return key_; }
    bool on_reply(const redisReply&) noexcept override
    {
        end();
        return true;
    }
    void on_failure(redis::Failure) noexcept override { end(); }

private:
    static inline GiveBack* unused = nullptr;

    GiveBack* next_free_ = nullptr;
    std::string key_;
    RemoteCheck check_;
    LimitState state_;
    microseconds taken_at_{ 0 };
};

}  // namespace

void give_back(const RemoteCheck& check, microseconds taken_at, microseconds now) noexcept
{
    GiveBack* call = nullptr;
    try {
        call = &GiveBack::make();
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

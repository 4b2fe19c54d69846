#include "check/give_back.h"

#include "check/coalescer.h"

#include <memory>
#include <string>

namespace ratelimit {

namespace {

/// One limit's; deletes itself at its end.
class GiveBack final : public redis::Call {
public:
    GiveBack(const RemoteCheck& check, microseconds taken_at, microseconds now)
        : key_(check.key), check_(check), state_(*check.state), taken_at_(taken_at)
    {
        check_.key = key_;
        if (check_.now) {
            check_.now = now;  // not when it was taken: what has drained since is nobody's
        }
    }

    redis::ScriptId script() const noexcept override { return check_.scripts.give_back; }
    redis::ArgumentCount argument_count() const noexcept override
    {
        return give_back_argument_count;
    }
    void write(redis::ScriptArguments& arguments) const override
    {
        write_give_back_arguments(check_, taken_at_, state_, arguments);
    }
    std::string_view routing_key() const noexcept override { return key_; }
    void on_reply(const redisReply&) noexcept override { delete this; }
    void on_failure(redis::Failure) noexcept override { delete this; }

private:
    const std::string key_;
    RemoteCheck check_;
    const LimitState state_;
    const microseconds taken_at_;
};

}  // namespace

void give_back(const RemoteCheck& check, microseconds taken_at, microseconds now) noexcept
try {
    auto call = std::make_unique<GiveBack>(check, taken_at, now);
    if (check.coalescer->client().send(*call)) {
        static_cast<void>(call.release());
    }
    put_back(*check.state, check.policy, check.cost);
} catch (const std::exception&) {
    // Out of memory: it stays counted.
}

}  // namespace ratelimit

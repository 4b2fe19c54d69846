#include "check/settlement.h"

#include "check/script_reply.h"

#include <string>
#include <utility>

namespace ratelimit {

namespace {

/// How long a settlement is tried.
constexpr redis::milliseconds longest{ 10'000 };

/// A refund, or a charge. It is tried again, for `longest`, if Redis surely did not execute it, and
/// never if it may have. Ended calls are kept in a list and reused with their memory.
class Settlement final : public redis::BatchCall {
public:
    static Settlement& take()
    {
        return unused == nullptr ? *new Settlement : *std::exchange(unused, unused->next_);
    }
    void release() noexcept { next_ = std::exchange(unused, this); }

    void begin(
        redis::Client& client, const RemoteLimit& limit, const Refund& refund, microseconds now)
    {
        begin(client, limit, now);
        refund_ = refund;
        script_ = limit.scripts.refund;
    }
    void begin(redis::Client& client, const RemoteLimit& limit, std::int64_t cost, microseconds now)
    {
        begin(client, limit, now);
        refund_.reset();
        check_.cost = cost;
        script_ = limit.scripts.charge;
    }

    std::string_view routing_key() const noexcept override { return key_; }
    void on_failure(redis::Failure) noexcept override
    {
        const bool again = !routing.written && client_->now() - began_ < longest;
        routing = {};
        routing.shard = shard_;
        if (!again || !client_->try_again(*this)) {
            client_->count_failed();
            release();
        }
    }

private:
    void begin(redis::Client& client, const RemoteLimit& limit, microseconds now)
    {
        client_ = &client;
        key_ = limit.redis_key;
        check_ = limit;
        if (check_.now) {
            check_.now = now;  // not the time of the check: an arrival time drains meanwhile
        }
        began_ = client.now();
        shard_ = limit.shard;
        routing = {};
        routing.shard = shard_;
    }

    redis::ScriptId script() const noexcept override { return script_; }
    redis::BatchFormat format() const noexcept override
    {
        return refund_ ? refund_format : sequence_format(1, numbers_of(check_.policy.algorithm));
    }
    void write_keys(redis::ScriptArguments& arguments) const override { arguments.key(key_); }
    void write_numbers(redis::ScriptArguments& arguments) const override
    {
        if (refund_) {
            write_refund_numbers(check_, *refund_, arguments);
        } else {
            write_sequence_numbers(check_, check_.cost, arguments);
        }
    }
    bool on_part(std::string_view part) noexcept override
    {
        SequenceReply reply;
        if (!refund_ && !read_sequence_reply(part, reply)) {
            return false;
        }
        release();
        return true;
    }

    static inline Settlement* unused = nullptr;

    Settlement* next_ = nullptr;
    redis::Client* client_ = nullptr;
    redis::milliseconds began_{ 0 };
    std::uint32_t shard_ = 0;
    std::string key_;
    LimitCheck check_;
    redis::ScriptId script_{};
    std::optional<Refund> refund_;  // empty: a charge
};

template <class What>
void send(
    redis::Client& client, const RemoteLimit& limit, const What& what, microseconds now) noexcept
{
    Settlement* call = nullptr;
    try {
        call = &Settlement::take();
        call->begin(client, limit, what, now);
        if (!client.send(*call)) {
            call->on_failure(redis::Failure::connection);
        }
    } catch (const std::exception&) {
        // Out of memory: nothing changes in Redis.
        client.count_failed();
        if (call != nullptr && !call->pending()) {
            call->release();
        }
    }
}

}  // namespace

void refund(
    redis::Client& client, const RemoteLimit& limit, const Refund& refund,
    microseconds now) noexcept
{
    send(client, limit, refund, now);
}

void charge(
    redis::Client& client, const RemoteLimit& limit, std::int64_t cost, microseconds now) noexcept
{
    send(client, limit, cost, now);
}

}  // namespace ratelimit

#include "redis/pipeline.h"

#include <utility>

#include <hiredis/async.h>
#include <openssl/err.h>
#include <sys/socket.h>

namespace ratelimit::redis {

Pipeline::Pipeline(
    EventLoop& loop, PipelineOwner& owner, milliseconds timeout, milliseconds longest_silence)
    : loop_(loop),
      owner_(owner),
      in_flight_(timeout, longest_silence),
      alarm_(loop, [this] { check_deadlines(); })
{
}

void Pipeline::flush() noexcept
{
    // All connections of the thread, nginx's too, take errors in OpenSSL's queue for their own.
    if (tls() != nullptr) {
        ERR_clear_error();
    }
    int done = 0;
    redisBufferWrite(&context().c, &done);
    if (tls() != nullptr) {
        ERR_clear_error();
    }
}

void Pipeline::mark_sent() noexcept
{
    if (in_flight_.has_unsent()) {
        const auto watch = in_flight_.mark_sent(loop_.now(), ServerClock::steady_now());
        alarm_.set_no_later_than(watch.due);
        if (watch.delays_exit) {
            alarm_.delay_exit(true);
        }
    }
}

void Pipeline::watch() noexcept
{
    const auto watch = in_flight_.watch(loop_.now());
    alarm_.set(watch.due);
    alarm_.delay_exit(watch.delays_exit);
}

InFlight::Command Pipeline::take_oldest() noexcept
{
    if (in_flight_.oldest_is_unsent()) {
        mark_sent();
    }
    InFlight::Command oldest = in_flight_.take_oldest();
    if (in_flight_.empty()) {
        alarm_.delay_exit(false);
    }
    return oldest;
}

CallQueue Pipeline::take_calls() noexcept
{
    alarm_.stop();
    return in_flight_.take_all();
}

void Pipeline::check_deadlines() noexcept
{
    const auto self = shared_from_this();
    mark_sent();
    const milliseconds now = loop_.now();
    in_flight_.each_overdue(now, [this](PendingCall& record) {
        owner_.timed_out(record);
        record.release()->overdue(record);
        return open();
    });
    if (open()) {
        owner_.deadlines_passed();
    }
    if (!open() || in_flight_.empty()) {
        return;
    }
    if (in_flight_.silent_at() <= now) {
        owner_.failed(*this, "no reply", Loss::silent);
    } else {
        watch();
    }
}

void Pipeline::call_replied(const redisReply& reply) noexcept
{
    const auto self = shared_from_this();
    in_flight_.replied(loop_.now());
    owner_.replied(*this, reply);
}

void Pipeline::disconnected(std::string_view reason) noexcept
{
    const auto self = shared_from_this();
    owner_.failed(*this, reason, Loss::failed);
}

void Pipeline::silent_at(milliseconds time) noexcept
{
    in_flight_.silent_at(time);
    watch();
}

void Pipeline::abort() noexcept
{
    if (open() && context().c.fd >= 0) {
        const linger at_once{ 1, 0 };  // the connection is reset
        setsockopt(context().c.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    free();
}

void Pipeline::close() noexcept
{
    abort();
    end_all(take_calls());
}

}  // namespace ratelimit::redis

#include "redis/silent_connection.h"

#include "redis/batcher.h"
#include "redis/error_table.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

SilentConnection::SilentConnection(
    EventLoop& loop, RecordPool& records, std::function<void(const PendingCall&)> timed_out,
    std::function<void()> replied)
    : loop_(loop),
      records_(records),
      timed_out_(std::move(timed_out)),
      replied_(std::move(replied)),
      timer_(loop.make_timer([this] { close(); })),
      in_flight_(milliseconds{ 0 }, longest),
      deadlines_(loop, in_flight_, [this] { check_deadlines(); })
{
    timer_->cancelable(true);
}

void SilentConnection::keep(
    redisAsyncContext& context, const ssl_st* tls, InFlight& in_flight) noexcept
{
    close();
    silent_since_ = in_flight.silent_since();
    in_flight.move_to(in_flight_);
    adopt_context(context, *this);
    context_ = &context;
    tls_ = tls;
    in_flight_.replied(loop_.now());
    deadlines_.next();
}

void SilentConnection::server_replied() noexcept
{
    if (context_ != nullptr) {
        timer_->start(loop_.now() - silent_since_ + first_pause);
    }
}

void SilentConnection::check_deadlines() noexcept
{
    const milliseconds now = loop_.now();
    const unsigned closed = closed_;
    in_flight_.each_overdue(now, [&](PendingCall& record) {
        timed_out_(record);
        record.release()->overdue(record);
        return closed == closed_;
    });
    if (closed == closed_ && in_flight_.silent(now)) {
        close();
    } else if (closed == closed_) {
        deadlines_.next();
    }
}

void SilentConnection::call_replied(const redisReply& reply) noexcept
{
    if (in_flight_.empty()) {
        close();  // nothing was sent
        return;
    }
    replied_();
    const unsigned closed = closed_;
    InFlight::Command command = in_flight_.take_oldest();
    deadlines_.ended();
    if (reply.type == REDIS_REPLY_ERROR) {
        const std::string_view error{ reply.str, reply.len };
        const Fate fate = rule_of(error_text(error)).fate();
        release_all(command.calls, records_, [fate](Call& call, milliseconds, bool) noexcept {
            call.ended(fate);
        });
    } else {
        deliver_all(command.calls, records_, reply, [](Call& call) { call.ended(Fate::failed); });
    }
    if (closed == closed_ && in_flight_.empty()) {
        close();
    }
}

void SilentConnection::disconnected(std::string_view) noexcept
{
    context_ = nullptr;  // hiredis frees it
    close();
}

void SilentConnection::close() noexcept
{
    ++closed_;
    timer_->stop();
    deadlines_.stop();
    abort_context(std::exchange(context_, nullptr));
    tls_ = nullptr;
    end_all(in_flight_.take_all(), records_);
}

bool SilentConnections::keep(
    redisAsyncContext& context, const ssl_st* tls, InFlight& in_flight) noexcept
try {
    if (!in_flight.wants_late_replies()) {
        return false;
    }
    auto place = std::find_if(
        all_.begin(), all_.end(), [](const SilentConnection& each) { return each.idle(); });
    if (place != all_.end() || all_.size() == most) {
        all_.splice(all_.end(), all_, place != all_.end() ? place : all_.begin());
    } else {
        all_.emplace_back(loop_, records_, timed_out_, replied_);
    }
    all_.back().keep(context, tls, in_flight);
    return true;
} catch (const std::exception&) {
    return false;
}

void SilentConnections::server_replied() noexcept
{
    for (SilentConnection& each : all_) {
        each.server_replied();
    }
}

void SilentConnections::close() noexcept
{
    for (SilentConnection& each : all_) {
        each.close();
    }
}

bool SilentConnections::idle() const noexcept
{
    return std::all_of(
        all_.begin(), all_.end(), [](const SilentConnection& each) { return each.idle(); });
}

}  // namespace ratelimit::redis

#include "check/coalescer.h"

#include <algorithm>

namespace ratelimit {

KeyQueue::~KeyQueue()
{
    if (message_ != nullptr) {
        message_->drop();
    }
}

bool KeyQueue::begin(ShardPart& first) noexcept
{
    PartList ended;
    waiting_.push_back(first);
    send_next(false, ended);
    return ended.empty();
}

/// Sends a message of the requests that wait, or waits until it can be sent. After a timeout,
/// requests that are overdue fail instead of waiting for a second one. Without a request the queue
/// is removed.
void KeyQueue::send_next(bool timed_out, PartList& ended) noexcept
{
    const auto fail = [&ended](ShardPart& part) {
        part.end = ShardPart::End::failed;
        ended.push_back(part);
    };
    while (timed_out && !waiting_.empty() && overdue(waiting_.front())) {
        fail(waiting_.front());
    }
    while (!waiting_.empty()) {
        try {
            if (send_or_wait(timed_out)) {
                return;
            }
        } catch (const std::exception&) {
            fail(waiting_.empty() ? message_->requests().front() : waiting_.front());
        }
        if (message_ != nullptr) {
            message_->requests().each(fail);
        }
        drop_message();
    }
    drop_message();
    all_.queues_.remove(*this);
}

void KeyQueue::drop_message() noexcept
{
    if (message_ != nullptr) {
        message_->give_up();
        message_ = {};
    }
}

/// After a timeout, requests keep their own deadlines instead of starting fresh ones. False: the
/// requests that the message took must fail. Throws if there is no memory.
bool KeyQueue::send_or_wait(bool after_timeout)
{
    if (message_ == nullptr) {
        message_ = CheckMessage::make(all_.client_, all_.node_time_, *this, waiting_.front());
    }
    const bool ready = message_->ready();
    if (!ready && !all_.client_.refuses(*message_->routing.shard)) {
        message_->wait();
        return true;
    }
    message_->take(waiting_);
    if (after_timeout) {
        message_->routing.expires = own_deadline(message_->requests().back());
    }
    const bool sent = ready && message_->send();
    if (sent && after_timeout) {
        watch_own_deadlines();
    }
    return sent;
}

void KeyQueue::message_ended(bool timed_out, PartList& again, PartList& ended) noexcept
{
    if (own_deadlines_ != nullptr) {
        own_deadlines_->stop();
    }
    if (!ended.empty() && !ended.back().lease.replies.empty()) {
        // A lease for a request that waits would come on top of this one.
        waiting_.each([](ShardPart& part) { part.lease_wanted = 0; });
    }
    message_ = {};
    again.take_all(waiting_);
    waiting_.take_all(again);
    send_next(timed_out, ended);
}

/// The messages of a chain are sent one after another here, and not each by the one before.
void KeyQueue::asked(bool timed_out) noexcept
{
    all_.asked_.push_back(*this);
    if (std::exchange(all_.asking_, true)) {
        return;
    }
    while (!all_.asked_.empty()) {
        all_.asked_.pop_front().proceed(timed_out);
    }
    all_.asking_ = false;
}

void KeyQueue::proceed(bool timed_out) noexcept
{
    PartList ended;
    send_next(timed_out, ended);
    notify(ended);
}

/// Without the time to connect.
redis::milliseconds KeyQueue::own_deadline(const ShardPart& part) const noexcept
{
    return part.since + all_.client_.usual_wait();
}

bool KeyQueue::overdue(const ShardPart& part) const noexcept
{
    return own_deadline(part) <= all_.client_.now();
}

unsigned KeyQueue::overdue() const noexcept
{
    unsigned requests = 0;
    waiting_.each([&](const ShardPart& part) { requests += overdue(part) ? 1 : 0; });
    return requests;
}

/// Starts the timer for the first request of the message to become overdue.
void KeyQueue::watch_own_deadlines() noexcept
try {
    if (own_deadlines_ == nullptr) {
        own_deadlines_ = all_.client_.make_timer([this] { fail_overdue(); });
    }
    const auto left = own_deadline(message_->requests().front()) - all_.client_.now();
    own_deadlines_->start(std::max(left, redis::milliseconds{ 1 }));
} catch (const std::exception&) {
    // Out of memory: the requests fail when the message does.
}

void KeyQueue::fail_overdue() noexcept
try {
    PartList ended;
    const PartList& requests = message_->requests();
    while (!requests.empty() && overdue(requests.front())) {
        message_->leave(requests.front());
        ended.push_back(requests.front());
    }
    if (!requests.empty()) {
        watch_own_deadlines();
    }
    notify(ended);
} catch (const std::exception&) {
    // Out of memory: the requests fail when the message does.
}

bool Coalescer::send(ShardPart& part) noexcept
{
    if (part.since.count() == 0) {
        part.since = client_.now();
    }
    const bool sent = send_or_wait(part);
    part.end = sent ? ShardPart::End::pending : ShardPart::End::failed;
    return sent;
}

bool Coalescer::send_or_wait(ShardPart& part) noexcept
try {
    KeyedHash keys = queues_.begin_hash();
    for (const RemoteLimit* limit : part.limits) {
        keys.add(limit->key);
    }
    const std::size_t hash = keys.finish();
    KeyQueue* const found =
        queues_.find(hash, [&part](const KeyQueue& queue) { return queue.matches(part); });
    if (found == nullptr) {
        return queues_.add(hash, *this).begin(part);
    }
    // A call in flight was sent before the breaker opened: no check waits for it.
    if (client_.refuses(part.limits.front()->shard)) {
        return false;
    }
    found->wait(part);
    ++waited_;
    return true;
} catch (const std::exception&) {
    return false;  // out of memory: as without a connection
}

}  // namespace ratelimit

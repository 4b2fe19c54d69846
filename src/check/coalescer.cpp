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
    patience_ = {};
    waiting_.push_back(first);
    send_next(ended);
    return ended.empty();
}

/// Sends a message of the requests that wait, or waits until it can be sent. Those whose time is
/// over fail. Without a request the queue is removed.
void KeyQueue::send_next(PartList& ended) noexcept
{
    if (deadlines_ != nullptr) {
        deadlines_->stop();
    }
    const auto fail = [&ended](ShardPart& part) {
        part.end = ShardPart::End::failed;
        ended.push_back(part);
    };
    while (!waiting_.empty() && has_expired(waiting_.front())) {
        fail(waiting_.front());
    }
    do {
        while (!waiting_.empty()) {
            try {
                if (send_or_wait()) {
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
    } while (!waiting_.empty());  // others went on, and their clients may have sent more
    all_.queues_.remove(*this);
}

void KeyQueue::drop_message() noexcept
{
    let_keys_go();
    message_ = {};
}

void KeyQueue::let_keys_go() noexcept
{
    if (!Link<KeyQueue>::linked()) {
        return;  // it waited for no key, or one
    }
    Link<KeyQueue>::unlink();
    if (all_.keeper_ == this) {
        all_.keeper_ = nullptr;
        message_->each_holding(&Holding::let_go);
        all_.keep_next({});
    }
}

/// False: the requests that the message took must fail. Throws if there is no memory.
bool KeyQueue::send_or_wait()
{
    if (message_ == nullptr) {
        message_ = CheckMessage::make(all_.client_, all_.node_time_, *this, waiting_.front());
    }
    Holding* const busy = message_->busy_holding(*this);
    if (busy != nullptr && !all_.client_.refuses(*message_->routing.shard)) {
        busy->wait(*this);
        patience_ = patience_.count() > 0 ? patience_ : all_.client_.longest_wait();
        watch_deadlines(waiting_);
        if (message_->has_several_holdings() && !Link<KeyQueue>::linked()) {
            keeps_from_ = waiting_.front().since + patience_ / 2;
            all_.in_line_.push_back(*this);
            all_.keep_next(keeps_from_);
        }
        return true;
    }
    message_->take(waiting_);
    if (patience_.count() > 0) {
        message_->routing.expires = message_->requests().back().since + patience_;
    }
    const bool sent = busy == nullptr && message_->send();
    if (sent && patience_.count() > 0) {
        watch_deadlines(message_->requests());
    }
    let_keys_go();
    return sent;
}

void KeyQueue::message_ended(bool timed_out, PartList& again, PartList& ended) noexcept
{
    // Requests keep their own deadlines then, instead of starting fresh ones.
    patience_ = timed_out ? all_.client_.usual_wait() : redis::milliseconds{ 0 };
    if (!ended.empty() && !ended.back().lease.replies.empty()) {
        // A lease for a request that waits would come on top of this one.
        waiting_.each([](ShardPart& part) { part.lease_wanted = 0; });
    }
    message_ = {};
    again.take_all(waiting_);
    waiting_.take_all(again);
    send_next(ended);
}

void KeyQueue::proceed() noexcept
{
    PartList ended;
    send_next(ended);
    notify(ended);
}

bool KeyQueue::has_expired(const ShardPart& part) const noexcept
{
    return patience_.count() > 0 && part.since + patience_ <= all_.client_.now();
}

unsigned KeyQueue::overdue() const noexcept
{
    const auto began = all_.client_.now() - all_.client_.usual_wait();
    unsigned requests = 0;
    waiting_.each([&](const ShardPart& part) { requests += part.since <= began ? 1 : 0; });
    return requests;
}

/// Starts the timer for the end of the first request's time.
void KeyQueue::watch_deadlines(const PartList& requests) noexcept
try {
    if (deadlines_ == nullptr) {
        deadlines_ = all_.client_.loop().make_timer([this] { fail_overdue(); });
        deadlines_->delay_exit(true);
    }
    const auto left = requests.front().since + patience_ - all_.client_.now();
    deadlines_->start(std::max(left, redis::milliseconds{ 1 }));
} catch (const std::exception&) {
    // Out of memory: the requests fail when the message does, or when a key becomes free.
}

void KeyQueue::fail_overdue() noexcept
try {
    if (!message_->used()) {
        Holding::Waiter::unlink();
        let_keys_go();  // its place was that of the request that fails
        proceed();
        return;
    }
    PartList ended;
    const PartList& requests = message_->requests();
    while (!requests.empty() && has_expired(requests.front())) {
        message_->leave(requests.front());
        ended.push_back(requests.front());
    }
    if (!requests.empty()) {
        watch_deadlines(requests);
    }
    notify(ended);
} catch (const std::exception&) {
    // Out of memory: the requests fail when the message does.
}

Coalescer::Coalescer(redis::Client& client, NodeTime node_time)
    : client_(client), node_time_(node_time), keeps_(client.loop(), [this] { keep_first(); })
{
}

/// Looks at this time whether keys are to be kept. Not at once: the keys that were let go are first
/// for all messages that are ready.
void Coalescer::keep_next(redis::milliseconds due) noexcept
{
    if (keeper_ == nullptr) {
        keeps_.set_no_later_than(due);
    }
}

/// Keeps the keys of the message that has waited longest, if its time has come.
void Coalescer::keep_first() noexcept
{
    KeyQueue* first = nullptr;
    in_line_.each([&first](KeyQueue& each) {
        first = first == nullptr || each.keeps_from() < first->keeps_from() ? &each : first;
    });
    if (keeper_ != nullptr || first == nullptr) {
        return;
    }
    if (first->keeps_from() > client_.now()) {
        keep_next(first->keeps_from());
        return;
    }
    keeper_ = first;
    keeper_->keep_keys();
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

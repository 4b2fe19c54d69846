#pragma once

#include "redis/client.h"
#include "zone/applied_limit.h"
#include "zone/node_clock.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>

namespace ratelimit {

class HeldRequests;

/// What one request holds of a concurrency limit, until it ends. It is a call that renews or
/// releases that, where it is counted: in Redis or in this node's memory.
class HeldUnits final : public redis::BatchCall {
public:
    std::string_view routing_key() const noexcept override { return key_; }
    void on_failure(redis::Failure failure) noexcept override;

private:
    friend class HeldRequests;
    friend class HeldQueue;

    enum class State : std::uint8_t {
        held,      // in a queue
        renewing,  // the renewal is in flight
        ended,     // the same, and the request has ended: the units are released afterwards
        unsent,    // the request has ended, but its release could not be sent yet; in a queue
        releasing  // the release is in flight
    };

    redis::ScriptId script() const noexcept override;
    redis::BatchFormat format() const noexcept override;
    void write_keys(redis::ScriptArguments& arguments) const override { arguments.key(key_); }
    void write_numbers(redis::ScriptArguments& arguments) const override;
    bool on_part(std::string_view part) noexcept override;
    bool renews() const noexcept { return state_ == State::renewing || state_ == State::ended; }

    HeldRequests* owner_ = nullptr;
    HeldUnits* next_ = nullptr;
    HeldUnits* previous_ = nullptr;
    State state_ = State::held;
    bool retried_ = false;  // which queue it is in
    std::string key_;       // in Redis, or of this node's memory
    LimitCheck check_;
    redis::Client* client_ = nullptr;  // null: local
    CheckScripts scripts_;
    std::uint32_t shard_ = 0;
    Refund counted_;           // where the units are counted
    milliseconds since_{ 0 };  // when they were counted there, or later; monotonic
    milliseconds due_{ 0 };    // when the next step is to be taken
};

/// HeldUnits in the order of their due times. It does not own them.
class HeldQueue {
public:
    HeldUnits* front() const noexcept { return first_; }
    HeldUnits* back() const noexcept { return last_; }
    void push_back(HeldUnits& units) noexcept;
    void remove(HeldUnits& units) noexcept;

private:
    HeldUnits* first_ = nullptr;
    HeldUnits* last_ = nullptr;
};

/// What the requests of this worker hold of one zone with concurrency=. It renews what is held for
/// longer than half of `hold`, and releases what a request holds when that ends.
///
/// A release is sent once: Redis may have executed one that has no reply, and the same again would
/// free the units of another request. Only one that was never written is tried again, while `hold`
/// lasts. If a renewal fails, the units are renewed again from where they were counted before: so
/// they may be counted twice, which frees nothing.
class HeldRequests {
public:
    using MakeTimer = std::function<std::unique_ptr<Timer>(std::function<void()> fired)>;

    HeldRequests(const Zone& zone, const NodeClock& clock, const MakeTimer& make_timer);
    ~HeldRequests();
    HeldRequests(const HeldRequests&) = delete;
    HeldRequests& operator=(const HeldRequests&) = delete;

    /// Registers what a decision counted. Null: out of memory, and the units are free after `hold`.
    HeldUnits* hold(const AppliedLimit& limit) noexcept;

    /// The request has ended.
    void release(HeldUnits& units) noexcept;

    /// Releases all, because the process exits.
    void release_all() noexcept;

private:
    friend class HeldUnits;
    using State = HeldUnits::State;

    HeldUnits& take();
    void free(HeldUnits& units) noexcept;
    milliseconds now() const noexcept;
    milliseconds pause() const noexcept;
    LocalRequest local_request(const HeldUnits& units) const noexcept;
    void count(std::int64_t units) noexcept;
    HeldQueue& queue_of(const HeldUnits& units) noexcept;
    void wait(HeldQueue& queue, HeldUnits& units, milliseconds delay) noexcept;
    void watch(milliseconds due) noexcept;
    void fire() noexcept;
    void renew(HeldUnits& units) noexcept;
    void renewed(HeldUnits& units, const Verdict& state, microseconds at) noexcept;
    void renewal_failed(HeldUnits& units) noexcept;
    void send_release(HeldUnits& units) noexcept;
    void release_failed(HeldUnits& units) noexcept;
    bool send(HeldUnits& units) noexcept;

    const Zone& zone_;
    const NodeClock& clock_;
    const milliseconds hold_;
    HeldQueue held_;             // to be renewed
    HeldQueue again_;            // failed renewals and unsent releases
    std::deque<HeldUnits> all_;  // owns the units, which are reused
    HeldUnits* unused_ = nullptr;
    std::unique_ptr<Timer> timer_;
    milliseconds timer_due_ = milliseconds::max();
    std::int64_t units_ = 0;  // of requests that have not ended
};

}  // namespace ratelimit

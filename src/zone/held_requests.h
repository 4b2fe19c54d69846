#pragma once

#include "base/free_list.h"
#include "base/list.h"
#include "check/holding.h"
#include "zone/applied_limit.h"
#include "zone/node_clock.h"

#include <functional>
#include <memory>
#include <string>

namespace ratelimit {

/// The units of a concurrency limit that one request holds in this node's memory, until it ends.
struct HeldUnits : Link<HeldUnits> {
    std::string key;
    Policy policy;
    Refund counted;         // where the units are counted
    milliseconds due{ 0 };  // when they are to be renewed
    HeldUnits* next = nullptr;
};

/// The units that requests of this worker hold in one zone with concurrency=: in Redis (Holdings),
/// or in this node's memory. In memory it renews units that are held for longer than half of
/// `hold`, and releases those of a request when it ends.
class HeldRequests {
public:
    using MakeTimer = std::function<std::unique_ptr<Timer>(std::function<void()> fired)>;

    HeldRequests(const Zone& zone, const NodeClock& clock, const MakeTimer& make_timer);
    HeldRequests(const HeldRequests&) = delete;
    HeldRequests& operator=(const HeldRequests&) = delete;

    /// The units held in Redis. `client` must be the same in each call.
    Holdings& in_redis(redis::Client& client);
    /// Null: in_redis was not called yet.
    Holdings* in_redis() noexcept { return in_redis_.get(); }

    /// Registers the units that a decision of this node's memory counted. Null: out of memory, and
    /// the units are free after `hold`.
    HeldUnits* hold(const AppliedLimit& limit) noexcept;

    /// The request has ended.
    void release(HeldUnits& units) noexcept;

    /// Releases all, because the process exits, and closes the holdings in Redis.
    void release_all() noexcept;

private:
    LocalRequest local_request(const HeldUnits& units) const noexcept;
    milliseconds now() const noexcept;
    void count(std::int64_t units) noexcept;
    void queue(HeldUnits& units) noexcept;
    void fire() noexcept;

    const Zone& zone_;
    const NodeClock& clock_;
    const milliseconds hold_;
    List<HeldUnits> held_;  // in the order of their due times
    ReusePool<HeldUnits> units_of_requests_;
    std::unique_ptr<Timer> timer_;
    std::int64_t units_ = 0;  // of requests that have not ended
    std::unique_ptr<Holdings> in_redis_;
};

}  // namespace ratelimit

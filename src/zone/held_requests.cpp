#include "zone/held_requests.h"

#include <algorithm>

namespace ratelimit {

HeldRequests::HeldRequests(const Zone& zone, const NodeClock& clock, const MakeTimer& make_timer)
    : zone_(zone),
      clock_(clock),
      hold_(std::chrono::duration_cast<milliseconds>(zone.policy.rate.window)),
      timer_(make_timer([this] { fire(); }))
{
}

Holdings& HeldRequests::in_redis(redis::Client& client)
{
    if (in_redis_ == nullptr) {
        in_redis_ = std::make_unique<Holdings>(Holdings::Parts{
            client, hold_, clock_.monotonic, [this](std::int64_t units) { count(units); } });
    }
    return *in_redis_;
}

milliseconds HeldRequests::now() const noexcept
{
    return std::chrono::duration_cast<milliseconds>(clock_.monotonic());
}

HeldUnits* HeldRequests::hold(const AppliedLimit& limit) noexcept
{
    HeldUnits* units = nullptr;
    try {
        units = &units_of_requests_.take();
        units->key = limit.key;
    } catch (const std::exception&) {
        if (units != nullptr) {
            units_of_requests_.give_back(*units);
        }
        return nullptr;
    }
    units->policy = limit.policy;
    units->counted = { limit.cost, limit.taken_at, limit.state.reset };
    queue(*units);
    count(limit.cost);
    return units;
}

void HeldRequests::release(HeldUnits& units) noexcept
{
    count(-units.counted.cost);
    units.unlink();
    zone_.memory().local_limiter().refund(
        local_request(units), clock_.in_memory(units.policy), units.counted);
    units_of_requests_.give_back(units);
}

void HeldRequests::release_all() noexcept
{
    timer_->stop();
    while (!held_.empty()) {
        release(held_.front());
    }
    if (in_redis_ != nullptr) {
        in_redis_->close();
    }
}

/// The zone's memory says what all workers hold.
void HeldRequests::count(std::int64_t units) noexcept
{
    units_ += units;
    zone_.memory().held_units().set(units_);
}

LocalRequest HeldRequests::local_request(const HeldUnits& units) const noexcept
{
    return { units.key, units.policy, units.counted.cost, zone_.record_of(units.policy) };
}

/// The timer fires more often than units are due: after a stop of this process it is extended by up
/// to its delay (DueTime), which must end before the units are free.
void HeldRequests::queue(HeldUnits& units) noexcept
{
    units.due = now() + hold_ / 2;
    held_.push_back(units);
    if (!timer_->running()) {
        timer_->start(hold_ / 32);
    }
}

void HeldRequests::fire() noexcept
{
    const milliseconds at = now();
    count(0);  // another worker resets it if this one is killed in the middle of a change
    while (!held_.empty() && held_.front().due <= at) {
        HeldUnits& units = held_.front();
        const microseconds renewed = clock_.in_memory(units.policy);
        const Verdict state =
            zone_.memory().local_limiter().renew(local_request(units), renewed, units.counted);
        units.counted.taken_at = renewed;
        units.counted.reset = state.reset;
        queue(units);
    }
    if (!held_.empty()) {
        timer_->start(hold_ / 32);
    }
}

}  // namespace ratelimit

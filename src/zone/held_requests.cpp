#include "zone/held_requests.h"

#include "check/coalescer.h"
#include "check/script_reply.h"

#include <algorithm>
#include <utility>

namespace ratelimit {

namespace {

constexpr milliseconds longest_pause{ 1000 };  // before a step that failed is tried again

}  // namespace

void HeldUnits::on_failure(redis::Failure) noexcept
{
    if (renews()) {
        owner_->renewal_failed(*this);
    } else {
        owner_->release_failed(*this);
    }
}

redis::ScriptId HeldUnits::script() const noexcept
{
    return renews() ? scripts_.renew : scripts_.refund;
}

redis::BatchFormat HeldUnits::format() const noexcept
{
    return renews() ? sequence_format(1, true) : refund_format;
}

void HeldUnits::write_numbers(redis::ScriptArguments& arguments) const
{
    if (renews()) {
        write_renewal_numbers(check_, counted_, arguments);
    } else {
        write_refund_numbers(check_, counted_, arguments);
    }
}

bool HeldUnits::on_part(std::string_view part) noexcept
{
    if (!renews()) {
        owner_->free(*this);
        return true;
    }
    SequenceReply reply;
    const bool good = read_sequence_reply(part, reply);
    if (good) {
        owner_->renewed(*this, reply.state, check_.now.value_or(reply.server_time));
    }
    return good;
}

void HeldQueue::push_back(HeldUnits& units) noexcept
{
    units.next_ = nullptr;
    units.previous_ = last_;
    (last_ == nullptr ? first_ : last_->next_) = &units;
    last_ = &units;
}

void HeldQueue::remove(HeldUnits& units) noexcept
{
    (units.previous_ == nullptr ? first_ : units.previous_->next_) = units.next_;
    (units.next_ == nullptr ? last_ : units.next_->previous_) = units.previous_;
}

HeldRequests::HeldRequests(const Zone& zone, const NodeClock& clock, const MakeTimer& make_timer)
    : zone_(zone),
      clock_(clock),
      hold_(std::chrono::duration_cast<milliseconds>(zone.policy.rate.window)),
      timer_(make_timer([this] { fire(); }))
{
    timer_->cancelable(true);  // a request that holds something keeps the process
}

HeldRequests::~HeldRequests() = default;

HeldUnits& HeldRequests::take()
{
    if (unused_ == nullptr) {
        HeldUnits& made = all_.emplace_back();
        made.owner_ = this;
        return made;
    }
    return *std::exchange(unused_, unused_->next_);
}

void HeldRequests::free(HeldUnits& units) noexcept
{
    units.next_ = std::exchange(unused_, &units);
}

milliseconds HeldRequests::now() const noexcept
{
    return std::chrono::duration_cast<milliseconds>(clock_.monotonic());
}

HeldUnits* HeldRequests::hold(const AppliedLimit& limit) noexcept
try {
    HeldUnits& units = take();
    try {
        const bool local = limit.source == Source::local;
        units.key_ = local ? limit.key : limit.redis_key;
        units.check_ = limit;
        units.client_ = local ? nullptr : &limit.coalescer->client();
        units.scripts_ = limit.scripts;
        units.shard_ = limit.shard;
        units.counted_ = { limit.cost, limit.taken_at, limit.state.reset };
        units.state_ = HeldUnits::State::held;
    } catch (const std::exception&) {
        free(units);
        throw;
    }
    units.since_ = now();
    wait(held_, units, hold_ / 2);
    count(limit.cost);
    return &units;
} catch (const std::exception&) {
    return nullptr;
}

void HeldRequests::release(HeldUnits& units) noexcept
{
    count(-units.counted_.cost);
    if (units.state_ == State::renewing) {
        units.state_ = State::ended;
        return;
    }
    queue_of(units).remove(units);
    send_release(units);
}

void HeldRequests::release_all() noexcept
{
    timer_->stop();
    for (HeldQueue* queue : { &held_, &again_ }) {
        while (HeldUnits* units = queue->front()) {
            queue->remove(*units);
            send_release(*units);
            if (units->state_ == State::unsent) {
                again_.remove(*units);
                free(*units);
            }
        }
    }
    count(-units_);
}

/// The zone's memory says what all workers hold.
void HeldRequests::count(std::int64_t units) noexcept
{
    units_ += units;
    zone_.memory().held_units().set(units_);
}

LocalRequest HeldRequests::local_request(const HeldUnits& units) const noexcept
{
    return { units.key_, units.check_.policy, units.counted_.cost,
             zone_.record_of(units.check_.policy) };
}

/// Which queue units are in that are `held` or `unsent`.
HeldQueue& HeldRequests::queue_of(const HeldUnits& units) noexcept
{
    return units.retried_ ? again_ : held_;
}

void HeldRequests::wait(HeldQueue& queue, HeldUnits& units, milliseconds delay) noexcept
{
    units.retried_ = &queue == &again_;
    units.due_ = now() + delay;
    queue.push_back(units);
    watch(units.due_);
}

/// The timer fires more often than something is due: after a stop of this process it is extended by
/// up to its delay (DueTime), which must not take the time until the units are free.
void HeldRequests::watch(milliseconds due) noexcept
{
    if (!timer_->running() || due < timer_due_) {
        timer_due_ = due;
        timer_->start(std::clamp(due - now(), milliseconds{ 1 }, hold_ / 32));
    }
}

void HeldRequests::fire() noexcept
{
    const milliseconds at = now();
    for (HeldQueue* queue : { &held_, &again_ }) {
        // Not longer than what is in the queue now: what fails is queued again.
        const HeldUnits* const last = queue->back();
        for (bool more = last != nullptr; more && queue->front()->due_ <= at;) {
            HeldUnits& units = *queue->front();
            more = &units != last;
            queue->remove(units);
            if (units.state_ == State::unsent) {
                send_release(units);
            } else {
                renew(units);
            }
        }
    }
    for (const HeldQueue* queue : { &held_, &again_ }) {
        if (queue->front() != nullptr) {
            watch(queue->front()->due_);
        }
    }
}

bool HeldRequests::send(HeldUnits& units) noexcept
try {
    if (units.check_.now) {
        units.check_.now = clock_.since_epoch();
    }
    units.routing = {};
    units.routing.shard = units.shard_;
    return units.client_->send(units);
} catch (const std::exception&) {
    return false;
}

void HeldRequests::renew(HeldUnits& units) noexcept
{
    if (units.client_ == nullptr) {
        const microseconds at = clock_.since_epoch();
        renewed(
            units, zone_.memory().local_limiter().renew(local_request(units), at, units.counted_),
            at);
        return;
    }
    units.state_ = State::renewing;
    units.delays_exit = false;
    if (!send(units)) {
        renewal_failed(units);
    }
}

void HeldRequests::renewed(HeldUnits& units, const Verdict& state, microseconds at) noexcept
{
    units.counted_.taken_at = at;
    units.counted_.reset = state.reset;
    units.since_ = now();
    if (units.state_ == State::ended) {
        send_release(units);
        return;
    }
    units.state_ = State::held;
    wait(held_, units, hold_ / 2);
}

/// Redis may have renewed the units. They are nevertheless renewed or released from where they were
/// counted before: at worst that takes the units of another request there, whose place the renewed
/// ones have, which are counted for longer.
void HeldRequests::renewal_failed(HeldUnits& units) noexcept
{
    if (units.state_ == State::ended) {
        send_release(units);
        return;
    }
    units.state_ = State::held;
    wait(again_, units, pause());
}

void HeldRequests::send_release(HeldUnits& units) noexcept
{
    if (units.client_ == nullptr) {
        zone_.memory().local_limiter().refund(
            local_request(units), clock_.since_epoch(), units.counted_);
        free(units);
        return;
    }
    units.state_ = State::releasing;
    units.delays_exit = true;
    if (!send(units)) {
        release_failed(units);
    }
}

void HeldRequests::release_failed(HeldUnits& units) noexcept
{
    const bool free_by_itself = now() - units.since_ > hold_ + hold_ / buckets_per_hold;
    if (units.routing.written || free_by_itself) {
        units.client_->count_failed();
        free(units);
        return;
    }
    units.state_ = State::unsent;
    wait(again_, units, pause());
}

milliseconds HeldRequests::pause() const noexcept
{
    return std::min(hold_ / buckets_per_hold, longest_pause);
}

}  // namespace ratelimit

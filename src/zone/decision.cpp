#include "zone/decision.h"

#include "check/coalescer.h"
#include "check/settlement.h"
#include "limit/override.h"
#include "zone/ahead.h"
#include "zone/held_requests.h"
#include "zone/local_limits.h"
#include "zone/node_state.h"

#include <algorithm>
#include <limits>

namespace ratelimit {

namespace {

/// The outcome of the limits, whose verdicts end with their overrides.
Outcome combine(std::span<AppliedLimit> limits) noexcept
{
    for (AppliedLimit& limit : limits) {
        if (limit.override_ends && limit.decided) {
            end_with_override(limit.state, limit.policy, *limit.override_ends);
        }
    }
    return outcome_of(limits);
}

bool none_awaits_redis(std::span<const AppliedLimit> limits) noexcept
{
    return std::ranges::none_of(
        limits, [](const AppliedLimit& limit) { return limit.awaits_redis(); });
}

/// The check has only limits of this request, which are AppliedLimits.
AppliedLimit& applied(RemoteLimit& limit) noexcept
{
    return static_cast<AppliedLimit&>(limit);
}

void settle_locally(const AppliedLimit& limit, std::int64_t cost, microseconds now) noexcept
{
    LocalLimiter limiter = limit.zone->memory().local_limiter();
    const std::int64_t more = std::max<std::int64_t>(cost - limit.cost, 0);
    LocalRequest request{ limit.key, limit.policy, more, limit.zone->record_of(limit.policy) };
    if (more > 0) {
        limiter.charge(request, now);
    } else {
        limiter.refund(request, now, { limit.cost - cost, limit.taken_at, limit.state.reset });
    }
}

/// Changes the cost of a request that a limit counted to `cost`, where it is counted: Redis or this
/// node's memory. Less is refunded; more is charged, even if it exceeds the limit. `now`: since the
/// epoch, by this node's clock.
void settle_cost(const AppliedLimit& limit, std::int64_t cost, microseconds now) noexcept
{
    const std::int64_t settled = settled_cost(limit.policy, limit.cost, cost);
    if (limit.source == Source::local) {
        settle_locally(limit, settled, now);
        return;
    }
    if (limit.source == Source::ahead) {
        settle_ahead(limit, settled);
    } else {
        const Refund counted{ limit.cost, limit.taken_at, limit.state.reset };
        settle(limit.coalescer->client(), limit, counted, settled, now);
    }
    if (settled < limit.cost) {
        limit.zone->refunded(limit.key);  // others may pass sooner than this node remembers
    }
}

}  // namespace

bool Decision::start() noexcept
{
    const bool malformed = std::ranges::any_of(
        limits_, [](const auto& limit) { return limit.malformed && !limit.shadow; });
    decide_by_overrides();
    if (!(malformed && closes()) && ask_redis()) {
        return true;
    }
    finish();
    return false;
}

/// Decides the limits whose key an override blocks.
void Decision::decide_by_overrides() noexcept
{
    for (AppliedLimit& limit : limits_) {
        if (limit.blocked_for) {
            limit.decided = true;
            limit.source = Source::overridden;
            limit.state = blocked(limit.cost, *limit.blocked_for);
            refused_by_node_ = refused_by_node_ || (!limit.shadow && !limit.state.granted);
        }
    }
}

/// Sends the limits that neither a lease nor a remembered refusal decides. False: nothing was sent.
bool Decision::ask_redis() noexcept
try {
    if (refused_by_node_ || none_awaits_redis(limits_)) {
        return false;
    }
    decide_by_node_state();
    if (refused_by_node_ || (!rules_.peeks && pass_ahead(limits_))) {
        return false;
    }
    const std::int64_t lease = select_for_redis();
    if (sent_.empty()) {
        return false;
    }
    check_.emplace(sent_, *this);
    check_->request_lease(lease);
    return check_->send();
} catch (const std::exception&) {
    return false;  // out of memory: as if there were no connection
}

void Decision::decide_by_node_state() noexcept
{
    const microseconds began = clock_.monotonic();
    // Leases first: Redis may refuse because of requests it already counted for our lease.
    for (AppliedLimit& limit : limits_) {
        if (limit.awaits_redis()) {
            limit.began = limit.zone->clock == Clock::local ? clock_.since_epoch() : began;
            spend_lease(limit, limit.began);
        }
    }
    for (AppliedLimit& limit : limits_) {
        if (limit.awaits_redis()) {
            recall_refusal(limit);
            refused_by_node_ = refused_by_node_ || (limit.decided && !limit.shadow);
        }
    }
}

/// Fills sent_, after it has reported the units that passed ahead. Returns how many requests to
/// lease: the smallest lease_wanted.
std::int64_t Decision::select_for_redis() noexcept
{
    std::int64_t lease = std::numeric_limits<std::int64_t>::max();
    std::size_t count = 0;
    for (AppliedLimit& limit : limits_) {
        if (limit.awaits_redis()) {
            if (limit.zone->clock == Clock::local) {
                limit.now = limit.began;
            }
            report_before_check(limit);
            sent_[count++] = &limit;
            lease = std::min(lease, limit.lease_wanted);
        }
    }
    sent_ = sent_.first(count);
    return lease;
}

void Decision::checked() noexcept
{
    finish();
    owner_.decided();
}

void Decision::finish() noexcept
{
    if (check_) {
        take_replies();
    }
    decide_by_memory();
    resolve();
    if (outcome_.refused || result_ == Result::failed_closed) {
        const bool refunded = refund();
        const bool blocked = begin_blocks();
        if (outcome_.refused && (refunded || blocked)) {
            outcome_ = combine(limits_);
        }
    } else {
        pass();
    }
}

void Decision::take_replies() noexcept
{
    check_->each_answered([this](RemoteLimit& remote) {
        AppliedLimit& limit = applied(remote);
        limit.decided = true;
        limit.began = limit.now.value_or(limit.began);
        note_answer(limit, clock_);
        note_clock(limit, clock_);
        if (limit.state.granted) {
            return;
        }
        // Redis may have refused because of tokens that another call leased while this request
        // waited: such a token pays for it. If Redis checked other limits too, it counted the
        // request in none of them, so that no token may pay for it.
        if (sent_.size() == 1) {
            spend_lease(limit, clock_.time_of(*limit.zone));
        }
        remember_refusal(limit, clock_);
    });
    check_->each_leased([](RemoteLimit& limit, const RunReply& reply, std::int64_t spent) {
        keep_lease(applied(limit), reply, spent);
    });
}

/// Whether this node's memory decides a limit that is not decided yet.
bool Decision::is_for_memory(const AppliedLimit& limit) const noexcept
{
    const bool by_fail_mode = rules_.fail_mode == FailMode::local && !refused_by_node_;
    return !limit.malformed && (!limit.in_redis() || by_fail_mode);
}

void Decision::decide_by_memory() noexcept
{
    bool any = false;
    bool take = true;
    for (AppliedLimit& limit : limits_) {
        if (limit.decided) {
            take = take && (limit.shadow || limit.state.granted);
        } else if (is_for_memory(limit)) {
            if (limit.in_redis()) {
                limit.policy = policy_of_one_node(limit.policy, limit.zone->node_count());
            }
            limit.decided = true;
            limit.source = Source::local;
            any = true;
        }
    }
    if (any) {
        decide_local_limits(limits_, clock_.read(), take && !fails_closed());
    }
}

bool Decision::undecided(const AppliedLimit& limit) const noexcept
{
    return !limit.decided && !limit.shadow && (limit.malformed || !refused_by_node_);
}

bool Decision::any_undecided() const noexcept
{
    return std::ranges::any_of(
        limits_, [this](const AppliedLimit& limit) { return undecided(limit); });
}

/// Whether the fail mode refuses a request with an undecided limit.
bool Decision::closes() const noexcept
{
    return rules_.fail_mode == FailMode::closed && !rules_.dry_run;
}

bool Decision::fails_closed() const noexcept
{
    return closes() && any_undecided();
}

void Decision::resolve() noexcept
{
    Decided decided = Decided::none;
    Outcome outcome;
    const bool any_decided = std::ranges::any_of(limits_, &AppliedLimit::decided);
    if (any_decided) {
        outcome = combine(limits_);
        decided = outcome.wait.count() > 0 ? Decided::delay : Decided::admit;
        decided = outcome.refused ? Decided::refuse : decided;
    }
    result_ = result_of(decided, any_undecided(), rules_.fail_mode, rules_.dry_run);
    if (result_ != Result::failed_closed) {
        outcome_ = outcome;
        has_outcome_ = any_decided;
    }
}

/// Refunds the units of a request that some limits counted and others refuse. False: no state has
/// changed.
bool Decision::refund() noexcept
{
    bool changed = check_.has_value();
    for (AppliedLimit& limit : limits_) {
        changed = refund_lease(limit) || changed;
        limit.held = {};
    }
    if (check_ && check_->refund(clock_.since_epoch())) {
        forget_refusals();
    }
    return changed;
}

/// Begins a block of each key whose limit refuses the request. A request that the limits do not
/// refuse (a dry run, a limit without an answer in fail mode closed) begins none. False: no state
/// has changed.
bool Decision::begin_blocks() noexcept
{
    if (result_ != Result::rejected) {
        return false;
    }
    bool changed = false;
    for (AppliedLimit& limit : limits_) {
        if (limit.decided && limit.policy.block.count() > 0) {
            begin_block(limit, clock_);
            changed = true;
        }
    }
    return changed;
}

void Decision::pass() noexcept
{
    if (check_) {
        forget_refusals();
    }
    for (AppliedLimit& limit : limits_) {
        renew_lease(limit, clock_);
        // Units that Redis counted are held since its reply.
        if (limit.holds != nullptr && limit.source == Source::local && limit.cost > 0
            && counted(limit)) {
            limit.held_here = limit.holds->hold(limit);
        }
    }
}

Decision::~Decision()
{
    for (AppliedLimit& limit : limits_) {
        end_ahead(limit);
        if (limit.held_here != nullptr) {
            limit.holds->release(*limit.held_here);
        }
    }
}

void Decision::settle(const AppliedLimit& limit, std::int64_t cost) const noexcept
{
    if (counted(limit) && cost != limit.cost) {
        settle_cost(limit, cost, clock_.since_epoch());
    }
    if (check_) {
        check_->settle_late(limit, cost);
    }
}

void Decision::forget_refusals() noexcept
{
    check_->each_answered([](RemoteLimit& limit) { ratelimit::forget_refusals(applied(limit)); });
}

}  // namespace ratelimit

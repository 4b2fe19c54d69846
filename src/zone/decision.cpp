#include "zone/decision.h"

#include "zone/local_limits.h"
#include "zone/node_state.h"

#include <algorithm>
#include <limits>

namespace ratelimit {

namespace {

bool awaits_redis(const AppliedLimit& limit) noexcept
{
    return limit.in_redis() && !limit.decided;
}

}  // namespace

bool Decision::start()
{
    const bool malformed = std::any_of(limits_.begin(), limits_.end(), [](const auto& limit) {
        return limit.malformed && !limit.shadow;
    });
    if (!(malformed && closes()) && ask_redis()) {
        return true;
    }
    finish();
    return false;
}

/// Asks for what neither a lease nor a remembered refusal decides. False: nothing was sent.
bool Decision::ask_redis()
{
    if (std::none_of(limits_.begin(), limits_.end(), awaits_redis)) {
        return false;
    }
    decide_by_node_state();
    if (refused_by_cache_) {
        return false;
    }
    const std::int64_t lease = make_checks();
    if (checks_.empty()) {
        return false;
    }
    check_.emplace(checks_, *this);
    check_->ask_ahead(lease);
    return check_->send();
}

void Decision::decide_by_node_state() noexcept
{
    asked_ = clock_.monotonic();
    // Leases first: Redis may refuse because of requests it already counted for our lease.
    for (AppliedLimit& limit : limits_) {
        if (awaits_redis(limit)) {
            limit.asked = limit.zone->clock == Clock::local ? clock_.since_epoch() : asked_;
            spend_lease(limit);
        }
    }
    for (AppliedLimit& limit : limits_) {
        if (awaits_redis(limit)) {
            recall_refusal(limit);
            refused_by_cache_ = refused_by_cache_ || (limit.decided && !limit.shadow);
        }
    }
}

/// Returns for how many requests all of them are worth leasing.
std::int64_t Decision::make_checks() noexcept
{
    std::int64_t lease = std::numeric_limits<std::int64_t>::max();
    std::size_t count = 0;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        AppliedLimit& limit = limits_[i];
        if (!awaits_redis(limit)) {
            continue;
        }
        RemoteCheck& check = checks_[count++];
        check.key = limit.redis_key;
        check.policy = limit.policy;
        check.cost = limit.cost;
        check.shadow = limit.shadow;
        if (limit.zone->clock == Clock::local) {
            check.now = limit.asked;
        }
        check.asked = asked_;
        check.coalescer = limit.coalescer;
        check.scripts = limit.scripts;
        check.state = &limit.state;
        check.limit = i;
        lease = std::min(lease, limit.lease_wanted);
    }
    checks_ = checks_.first(count);
    return lease;
}

void Decision::taken_ahead(
    std::span<const RemoteCheck> checks, std::span<const BatchAnswer> answers,
    std::int64_t spent) noexcept
{
    for (std::size_t i = 0; i < checks.size(); ++i) {
        const microseconds asked = checks[i].now.value_or(checks[i].asked);
        keep_lease(limits_[checks[i].limit], answers[i], spent, asked);
    }
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
        refund();
    } else if (check_) {
        forget_refusals();
    }
}

void Decision::take_replies() noexcept
{
    check_->settle_ahead(clock_.since_epoch());
    check_->each_answered([this](const RemoteCheck& check) {
        AppliedLimit& limit = limits_[check.limit];
        limit.decided = true;
        limit.source = check.leased ? Source::lease : Source::redis;
        limit.asked = check.now.value_or(check.asked);
        remember_refusal(limit, clock_);
    });
}

/// Whether a limit that is not decided is for this node's memory.
bool Decision::is_for_memory(const AppliedLimit& limit) const noexcept
{
    const bool by_fail_mode = rules_.fail_mode == FailMode::local && !refused_by_cache_;
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
                limit.policy = policy_of_one_node(limit.policy, limit.zone->nodes);
            }
            limit.decided = true;
            limit.source = Source::local;
            any = true;
        }
    }
    if (any) {
        decide_local_limits(limits_, clock_.since_epoch(), take && !fails_closed());
    }
}

bool Decision::any_decided() const noexcept
{
    return std::any_of(
        limits_.begin(), limits_.end(), [](const AppliedLimit& limit) { return limit.decided; });
}

bool Decision::undecided(const AppliedLimit& limit) const noexcept
{
    return !limit.decided && !limit.shadow && (limit.malformed || !refused_by_cache_);
}

bool Decision::any_undecided() const noexcept
{
    return std::any_of(limits_.begin(), limits_.end(), [this](const AppliedLimit& limit) {
        return undecided(limit);
    });
}

/// Whether an undecided limit refuses a request.
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
    if (fails_closed()) {
        result_ = Result::failed_closed;
        return;
    }
    if (!any_decided()) {
        result_ = Result::failed_open;
        return;
    }
    outcome_ = outcome_of(limits_);
    if (outcome_.refused) {
        result_ = rules_.dry_run ? Result::rejected_dry_run : Result::rejected;
    } else if (outcome_.wait.count() > 0) {
        result_ = rules_.dry_run ? Result::delayed_dry_run : Result::delayed;
    } else {
        result_ = any_undecided() ? Result::failed_open : Result::passed;
    }
}

/// Returns what some limits took for a request that does not pass.
void Decision::refund() noexcept
{
    for (AppliedLimit& limit : limits_) {
        refund_lease(limit);
    }
    if (check_ && check_->give_back(clock_.since_epoch())) {
        forget_refusals();
    }
    if (outcome_.refused) {
        outcome_ = outcome_of(limits_);  // of what is left now
    }
}

void Decision::forget_refusals() noexcept
{
    check_->each_answered(
        [this](const RemoteCheck& check) { ratelimit::forget_refusals(limits_[check.limit]); });
}

}  // namespace ratelimit

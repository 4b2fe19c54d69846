#include "http/request_state.h"

#include "http/known_limits.h"
#include "nginx/clock.h"
#include "nginx/pool.h"
#include "store/zone_memory.h"
#include "zone/fail_mode.h"

#include <algorithm>

namespace ratelimit::http {

namespace {

void destroy(void* data) noexcept
{
    static_cast<RequestState*>(data)->~RequestState();
}

}  // namespace

RequestState* RequestState::find(ngx_http_request_t* r) noexcept
{
    auto* state = static_cast<RequestState*>(ngx_http_get_module_ctx(r, ngx_http_ratelimit_module));
    if (state != nullptr || (!r->internal && !r->filter_finalize)) {
        return state;
    }
    for (auto* cleanup = r->pool->cleanup; cleanup != nullptr; cleanup = cleanup->next) {
        if (cleanup->handler == destroy) {
            state = static_cast<RequestState*>(cleanup->data);
            ngx_http_set_ctx(r, state, ngx_http_ratelimit_module);
            return state;
        }
    }
    return nullptr;
}

RequestState* RequestState::make(ngx_http_request_t* r, std::size_t limits)
{
    static_assert(alignof(RequestState) <= NGX_ALIGNMENT);
    // Not nginx::make: find knows the state by this very cleanup.
    auto* cleanup = ngx_pool_cleanup_add(r->pool, sizeof(RequestState));
    if (cleanup == nullptr) {
        return nullptr;
    }
    auto* state = new (cleanup->data) RequestState(r, location_conf(r));
    state->limits = nginx::make_array<Limit>(r->pool, limits);
    state->checks = nginx::make_array<RemoteCheck>(r->pool, limits);
    state->decided = nginx::make_array<DecidedLimit>(r->pool, limits);
    cleanup->handler = destroy;
    if (limits != 0 && (state->limits.empty() || state->checks.empty() || state->decided.empty())) {
        return nullptr;
    }
    ngx_http_set_ctx(r, state, ngx_http_ratelimit_module);
    return state;
}

void RequestState::note_undecided(ZoneConf& zone) noexcept
{
    undecided = true;
    if (undecided_zones.data() == nullptr) {
        const auto room = nginx::make_array<ZoneConf*>(request->pool, conf.limits->limits.size());
        if (room.data() == nullptr) {
            return;
        }
        undecided_zones = room.first(0);
    }
    undecided_zones = { undecided_zones.data(), undecided_zones.size() + 1 };
    undecided_zones.back() = &zone;
}

bool RequestState::ask(Decided when_decided)
{
    decided_ = when_decided;
    if (checks.empty() || fails_closed()) {
        return false;
    }
    const auto asked = nginx::monotonic_time();
    for (RemoteCheck& check : checks) {
        check.asked = asked;
    }
    // First: Redis refuses also since it has counted what is leased.
    take_from_leases(*this);
    if (refused_by_cache(*this)) {
        refused_here = true;
        return false;
    }
    if (checks.empty()) {
        return false;
    }
    check_.emplace(checks, *this);
    check_->ask_ahead(wanted_ahead(*this));
    return check_->send();
}

void RequestState::taken_ahead(
    std::span<const RemoteCheck> answered, std::span<const BatchAnswer> answers,
    std::int64_t spent) noexcept
{
    keep_leases(*this, answered, answers, spent);
}

void RequestState::take_answers() noexcept
{
    if (check_) {
        check_->settle_ahead(nginx::local_time());
        check_->each_answered([&](const RemoteCheck& check) {
            limits[check.limit].known = true;
            decided[check.limit].source = check.leased ? Source::lease : Source::redis;
            remember_refusal(*this, check);
        });
    }
}

bool RequestState::all_known() const noexcept
{
    return std::all_of(
        limits.begin(), limits.end(), [](const Limit& limit) { return limit.known; });
}

/// Whether a limit that is not known is for this node's memory.
bool RequestState::decided_here(std::size_t limit) const noexcept
{
    return limits[limit].zone->redis == nullptr
        || (!refused_here && conf.fail_mode == static_cast<ngx_uint_t>(FailMode::local));
}

/// Whether an enforced limit that nobody decides refuses the request.
bool RequestState::fails_closed() const noexcept
{
    return undecided && conf.dry_run == 0
        && conf.fail_mode == static_cast<ngx_uint_t>(FailMode::closed);
}

/// Decides what is for this node's memory, together. False: out of memory.
bool RequestState::decide_here() noexcept
{
    const auto here = nginx::make_array<LocalCheck>(request->pool, decided.size());
    if (here.data() == nullptr) {
        return false;
    }
    for (std::size_t i = 0; i < decided.size(); ++i) {
        const bool decidable = limits[i].known || refused_here || decided_here(i);
        undecided = undecided || !(decided[i].shadow || decidable);
    }
    std::size_t count = 0;
    bool take = !fails_closed();
    for (std::size_t i = 0; i < decided.size(); ++i) {
        DecidedLimit& limit = decided[i];
        const ZoneConf& zone = *limits[i].zone;
        if (limits[i].known) {
            take = take && (limit.shadow || limit.state.granted);
        } else if (decided_here(i)) {
            if (zone.redis != nullptr) {
                limit.policy = policy_of_one_node(limit.policy, zone.zone.nodes);
            }
            limits[i].known = true;
            limit.source = Source::local;
            here[count++] = { ZoneMemory(*zone.memory).local_limiter(),
                              limits[i].key,
                              limit.policy,
                              limits[i].cost,
                              limit.shadow,
                              &limit.state,
                              zone.zone.record_of(limit.policy) };
        }
    }
    decide_locally(here.first(count), nginx::local_time(), take);
    return true;
}

/// Limits that nobody has decided are as if they were not there, but for the fail mode.
void RequestState::leave_out_unknown() noexcept
{
    std::size_t kept = 0;
    for (std::size_t i = 0; i < decided.size(); ++i) {
        if (!limits[i].known) {
            if (!refused_here && !decided[i].shadow) {
                note_undecided(*limits[i].zone);
            }
            continue;
        }
        for (RemoteCheck& check : checks) {
            if (check.limit == i) {
                check.limit = kept;
                check.state = &decided[kept].state;
            }
        }
        limits[kept] = limits[i];
        decided[kept++] = decided[i];
    }
    limits = limits.first(kept);
    decided = decided.first(kept);
}

void RequestState::decide() noexcept
{
    waited = ngx_current_msec - started;
    take_answers();
    if (!all_known()) {
        if (!decide_here()) {
            undecided = true;
        }
        leave_out_unknown();
    }
    settle();
    if (outcome.refused || result == Result::failed_closed) {
        give_back();
    } else if (check_) {
        forget_refusals();
    }
}

/// What some limits took, and others would not have.
void RequestState::give_back() noexcept
{
    return_leases(*this);
    if (check_ && check_->give_back(nginx::local_time())) {
        forget_refusals();
    }
    if (outcome.refused) {
        outcome = outcome_of(decided);  // of what is left now
    }
}

void RequestState::forget_refusals() noexcept
{
    check_->each_answered([&](const RemoteCheck& check) { http::forget_refusals(*this, check); });
}

void RequestState::settle() noexcept
{
    const bool enforced = conf.dry_run == 0;
    if (fails_closed()) {
        result = Result::failed_closed;
        return;
    }
    if (decided.empty()) {
        result = Result::failed_open;
        return;
    }
    outcome = outcome_of(decided);
    if (outcome.refused) {
        result = enforced ? Result::rejected : Result::rejected_dry_run;
    } else if (outcome.wait.count() > 0) {
        result = enforced ? Result::delayed : Result::delayed_dry_run;
    } else {
        result = undecided ? Result::failed_open : Result::passed;
    }
}

void RequestState::checked() noexcept
{
    decide();
    decided_(*this);
}

}  // namespace ratelimit::http

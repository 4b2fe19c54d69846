#include "http/access_handler.h"

#include "http/client_gone.h"
#include "http/decision_count.h"
#include "http/evaluate_limits.h"
#include "http/problem_details.h"
#include "http/refusal_log.h"
#include "http/request_state.h"
#include "nginx/guarded.h"
#include "nginx/text.h"

#include <algorithm>
#include <array>

namespace ratelimit::http {

namespace {

using Stage = RequestState::Stage;

/// Watches the client of a delayed request, as limit_req does: if the client leaves, nginx ends the
/// request.
bool watch_client(ngx_http_request_t* r) noexcept
{
    ngx_event_t* read = r->connection->read;
    if (read->ready) {
        ngx_post_event(read, &ngx_posted_events);
    } else if (ngx_handle_read_event(read, 0) != NGX_OK) {
        return false;
    }
    r->read_event_handler = ngx_http_test_reading;
    return true;
}

bool unwatch_client(ngx_http_request_t* r) noexcept
{
    r->read_event_handler = ngx_http_block_reading;
    return ngx_handle_read_event(r->connection->read, 0) == NGX_OK;
}

/// Handles write events of a delayed request. nginx clears `delayed` when the timer expires;
/// earlier events are ignored.
void delay_over(ngx_http_request_t* r) noexcept
{
    ngx_event_t* write = r->connection->write;
    if (write->delayed) {
        if (ngx_handle_write_event(write, 0) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        }
        return;
    }
    if (!unwatch_client(r)) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}

ngx_int_t delay(ngx_http_request_t* r, RequestState& state) noexcept
{
    if (!watch_client(r)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    state.stage = Stage::delaying;
    r->write_event_handler = delay_over;
    r->connection->write->delayed = 1;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(state.decision.outcome().wait);
    ngx_log_debug1(
        NGX_LOG_DEBUG_HTTP, r->connection->log, 0, "ratelimit delay: %L ms", wait.count());
    ngx_add_timer(r->connection->write, static_cast<ngx_msec_t>(wait.count()));
    return NGX_AGAIN;
}

#if (NGX_DEBUG)

void debug_decision(const RequestState& state) noexcept
{
    ngx_log_t* log = state.request->connection->log;
    if ((log->log_level & NGX_LOG_DEBUG_HTTP) == 0) {
        return;
    }
    const Decision& decision = state.decision;
    ngx_uint_t undecided = 0;
    for (const AppliedLimit& limit : decision.limits()) {
        undecided += decision.undecided(limit) ? 1 : 0;
        if (!limit.decided) {
            continue;
        }
        const auto& retry_after = limit.state.retry_after;
        const ngx_str_t zone = nginx::borrowed(limit.zone->name);
        ngx_log_debug6(
            NGX_LOG_DEBUG_HTTP, log, 0,
            "ratelimit zone \"%V\": %s by %s, remaining %L, reset %L us, retry after %L us", &zone,
            limit.state.granted ? "granted" : "refused", name_of(limit.source).data(),
            limit.state.remaining, limit.state.reset.count(),
            retry_after ? retry_after->count() : -1);
    }
    ngx_log_debug3(
        NGX_LOG_DEBUG_HTTP, log, 0, "ratelimit decision: %s, %ui undecided, waited %M ms",
        decision.outcome().refused ? "refused" : "passed", undecided, state.waited);
}

#else

void debug_decision(const RequestState&) noexcept {}

#endif

/// Called once for each decision, also if the client has left.
void record(const RequestState& state) noexcept
{
    log_decision(state);
    count_decision(state.decision, ZoneMemory(*main_conf(state.request).requests).counters());
    debug_decision(state);
}

/// auth_request takes 401 and 403 as a refusal, and logs an error for any other status.
ngx_int_t refused(ngx_http_request_t* r, const RequestState& state, ngx_uint_t status) noexcept
{
    if (r == r->main) {
        return refuse(r, state, static_cast<ngx_int_t>(status));
    }
    r->write_event_handler = ngx_http_request_empty_handler;  // it may have been posted twice
    return NGX_HTTP_FORBIDDEN;
}

/// Refuses, delays or passes the request as it was decided.
ngx_int_t act(ngx_http_request_t* r, RequestState& state) noexcept
{
    state.stage = Stage::done;

    switch (state.decision.result()) {
    case Result::rejected:
        return refused(r, state, state.conf.refuse_status);
    case Result::failed_closed:
        return refused(r, state, state.conf.fail_status);
    case Result::delayed:
        return delay(r, state);
    default:
        return NGX_DECLINED;
    }
}

/// Parks the request while its check is in flight. The client is not watched: a check that was sent
/// is decided, and nginx notices afterwards, as it would without the module, that the client has
/// left. If nginx terminates the request (a QUIC connection closes, a discarded body times out),
/// `blocked` keeps it alive until `resume`.
ngx_int_t park(ngx_http_request_t* r, RequestState& state) noexcept
{
    ngx_log_debug1(
        NGX_LOG_DEBUG_HTTP, r->connection->log, 0, "ratelimit check sent, %uz limits",
        state.decision.checks_sent());
    state.stage = Stage::waiting;
    ++r->main->blocked;
    r->write_event_handler = ngx_http_request_empty_handler;
    return NGX_AGAIN;
}

/// The only resume of a parked request. It posts a write event, as if the connection had become
/// writable, so that nginx continues the request as its protocol requires.
void resume(RequestState& state) noexcept
{
    ngx_http_request_t* r = state.request;

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0, "ratelimit check ended");
    record(state);
    state.stage = Stage::answered;
    --r->main->blocked;
    // nginx has set another handler if it terminated the request meanwhile; it frees the request.
    if (r->write_event_handler == ngx_http_request_empty_handler) {
        r->write_event_handler = ngx_http_core_run_phases;
        if (r != r->main) {
            ngx_http_post_request(r, nullptr);  // if another subrequest has the connection's events
        }
    }
    ngx_post_event(r->connection->write, &ngx_posted_events);
}

void take_nothing(AppliedLimit& limit) noexcept
{
    limit.cost = 0;
    limit.holdings = nullptr;
}

ngx_int_t begin(ngx_http_request_t* r)
{
    const LocationConf& conf = location_conf(r);
    if (conf.limits == nullptr || conf.limits->limits.empty()) {
        return NGX_DECLINED;
    }
    if (RequestState* state = RequestState::asked_before(r)) {
        return act(r, *state);
    }
    const auto limits = evaluate_limits(r, *conf.limits);
    if (!limits) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (limits->empty()) {
        return NGX_DECLINED;  // after an internal redirect, another location's limits may apply
    }
    if (conf.check == check_peeks) {
        std::for_each(limits->begin(), limits->end(), take_nothing);
    }
    RequestState* state = RequestState::make(r, *limits);
    if (state == nullptr) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (state->decide(resume)) {
        return park(r, *state);
    }
    record(*state);
    return act(r, *state);
}

ngx_int_t run(ngx_http_request_t* r)
{
    RequestState* state = RequestState::find(r);
    if (state == nullptr) {
        return begin(r);
    }
    switch (state->stage) {
    case Stage::waiting:
        return NGX_AGAIN;
    case Stage::answered: {
        const ngx_int_t result = act(r, *state);
        return result == NGX_DECLINED && r == r->main ? pass_without_client(r, *state) : result;
    }
    case Stage::delaying:
        state->stage = Stage::done;
        return NGX_DECLINED;
    default:
        break;
    }
    return NGX_DECLINED;
}

ngx_int_t guarded_run(ngx_http_request_t* r) noexcept
{
    return nginx::guarded(
        r->connection->log, ngx_int_t{ NGX_HTTP_INTERNAL_SERVER_ERROR }, [r] { return run(r); });
}

bool satisfy_any(ngx_http_request_t* r) noexcept
{
    const auto* core = static_cast<const ngx_http_core_loc_conf_t*>(
        ngx_http_get_module_loc_conf(r, ngx_http_core_module));
    return core->satisfy == NGX_HTTP_SATISFY_ANY;
}

bool is_of(ngx_http_request_t* r, Phase phase) noexcept
{
    return location_conf(r).phase == phase;
}

}  // namespace

ngx_int_t access_handler(ngx_http_request_t* r) noexcept
{
    return is_of(r, phase_access) && !satisfy_any(r) ? guarded_run(r) : NGX_DECLINED;
}

ngx_int_t precontent_handler(ngx_http_request_t* r) noexcept
{
    const bool now = r == r->main && is_of(r, phase_access) && satisfy_any(r);
    return now ? guarded_run(r) : NGX_DECLINED;
}

/// nginx has no access phase for subrequests.
ngx_int_t preaccess_handler(ngx_http_request_t* r) noexcept
{
    const bool now = r == r->main ? is_of(r, phase_preaccess) : is_limited(r);
    return now ? guarded_run(r) : NGX_DECLINED;
}

}  // namespace ratelimit::http

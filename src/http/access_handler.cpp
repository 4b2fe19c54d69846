#include "http/access_handler.h"

#include "http/decision_count.h"
#include "http/limit_checks.h"
#include "http/refusal_log.h"
#include "http/request_state.h"
#include "nginx/guarded.h"

namespace ratelimit::http {

namespace {

using Stage = RequestState::Stage;

/// Watches the client while the request waits: one that leaves ends it.
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

/// Write events of a delayed request: the last is the timer's.
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
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(state.outcome.wait);
    ngx_add_timer(r->connection->write, static_cast<ngx_msec_t>(wait.count()));
    return NGX_AGAIN;
}

/// The decision is there: what becomes of the request.
ngx_int_t act(ngx_http_request_t* r, RequestState& state) noexcept
{
    state.stage = Stage::done;
    log_decision(state);
    count_decision(state);

    switch (state.result) {
    case Result::rejected:
        return static_cast<ngx_int_t>(state.conf.refuse_status);
    case Result::failed_closed:
        return static_cast<ngx_int_t>(state.conf.fail_status);
    case Result::delayed:
        return delay(r, state);
    default:
        return NGX_DECLINED;
    }
}

ngx_int_t begin(ngx_http_request_t* r)
{
    const LocationConf& conf = location_conf(r);
    if (conf.limits == nullptr || conf.limits->limits.empty()) {
        return NGX_DECLINED;
    }
    RequestState* state = nullptr;
    switch (make_checks(r, *conf.limits, state)) {
    case Checks::failed:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    case Checks::nothing_limited:
        return NGX_DECLINED;
    case Checks::ready:
        break;
    }

    if (state->checks.empty()) {
        state->decide();
        return act(r, *state);
    }
    // Watched before anything is on its way: from here on only the answer resumes the request.
    if (!watch_client(r)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (!state->ask()) {
        state->decide();
        return unwatch_client(r) ? act(r, *state) : ngx_int_t{ NGX_HTTP_INTERNAL_SERVER_ERROR };
    }
    state->stage = Stage::waiting;
    r->write_event_handler = ngx_http_request_empty_handler;
    return NGX_AGAIN;
}

ngx_int_t run(ngx_http_request_t* r)
{
    if (r != r->main) {
        return NGX_DECLINED;  // its main request has been counted
    }
    RequestState* state = RequestState::find(r);
    if (state == nullptr || state->stage == Stage::unlimited) {
        return begin(r);
    }
    switch (state->stage) {
    case Stage::waiting:
        return NGX_AGAIN;
    case Stage::answered:
        if (!unwatch_client(r)) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        return act(r, *state);
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
    return is_of(r, phase_access) && satisfy_any(r) ? guarded_run(r) : NGX_DECLINED;
}

ngx_int_t preaccess_handler(ngx_http_request_t* r) noexcept
{
    return is_of(r, phase_preaccess) ? guarded_run(r) : NGX_DECLINED;
}

}  // namespace ratelimit::http

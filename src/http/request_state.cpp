#include "http/request_state.h"

#include "check/script_reply.h"
#include "nginx/pool.h"
#include "zone/fail_mode.h"

#include <algorithm>

namespace ratelimit::http {

namespace {

void destroy(void* data) noexcept
{
    static_cast<RequestState*>(data)->~RequestState();
}

/// The fewest limits for which a reply's states do not fit the stack.
constexpr std::size_t many_limits = 16;

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
    state->checks = nginx::make_array<LimitCheck>(r->pool, limits);
    state->decided = nginx::make_array<DecidedLimit>(r->pool, limits);
    cleanup->handler = destroy;
    if (limits != 0 && (state->limits.empty() || state->checks.empty() || state->decided.empty())) {
        return nullptr;
    }
    ngx_http_set_ctx(r, state, ngx_http_ratelimit_module);
    return state;
}

redis::ArgumentCount RequestState::argument_count() const noexcept
{
    return ratelimit::argument_count(checks);
}

void RequestState::write(redis::ScriptArguments& arguments) const
{
    write_arguments(checks, arguments);
}

void RequestState::on_reply(const redisReply& reply) noexcept
{
    LimitState few[many_limits];
    std::span<LimitState> states{ few, std::min(checks.size(), many_limits) };
    if (checks.size() > many_limits) {
        states = nginx::make_array<LimitState>(request->pool, checks.size());
    }

    if (states.size() != checks.size() || !read_reply(reply, states)) {
        settle_failed();
    } else {
        for (std::size_t i = 0; i < states.size(); ++i) {
            decided[i].state = states[i];
        }
        settle();
    }
    answered();
}

void RequestState::on_failure(redis::Failure) noexcept
{
    settle_failed();
    answered();
}

void RequestState::settle() noexcept
{
    if (undecided && fails_closed()) {
        settle_failed();
        return;
    }
    waited = ngx_current_msec - started;
    outcome = outcome_of(decided);
    if (outcome.refused) {
        result = conf.dry_run ? Result::rejected_dry_run : Result::rejected;
    } else if (outcome.wait.count() > 0) {
        result = conf.dry_run ? Result::delayed_dry_run : Result::delayed;
    } else {
        result = Result::passed;
    }
}

void RequestState::settle_failed() noexcept
{
    waited = ngx_current_msec - started;
    result = fails_closed() ? Result::failed_closed : Result::failed_open;
}

/// What never refuses a request does not refuse it for want of a decision either.
bool RequestState::fails_closed() const noexcept
{
    const bool enforced = undecided
        || std::any_of(decided.begin(), decided.end(),
                       [](const DecidedLimit& limit) { return !limit.shadow; });
    return conf.fail_mode == static_cast<ngx_uint_t>(FailMode::closed) && enforced
        && conf.dry_run == 0;
}

/// The one resume of a parked request: from nginx's posted events, as if its connection had become
/// writable, so that whatever protocol it came by is run as nginx itself runs it.
void RequestState::answered() noexcept
{
    stage = Stage::answered;
    request->write_event_handler = ngx_http_core_run_phases;
    ngx_post_event(request->connection->write, &ngx_posted_events);
}

}  // namespace ratelimit::http

#include "http/request_state.h"

#include "limit/rate_headers.h"
#include "nginx/pool.h"
#include "node/clocks.h"

namespace ratelimit::http {

namespace {

/// With its limits, which release what the request holds.
void destroy(void* data) noexcept
{
    auto* state = static_cast<RequestState*>(data);
    const auto limits = state->decision.limits();
    state->~RequestState();
    std::destroy(limits.begin(), limits.end());
}

Decision::Rules rules_of(const LocationConf& conf) noexcept
{
    return { static_cast<FailMode>(conf.fail_mode), conf.dry_run != 0, conf.check == check_peeks };
}

}  // namespace

RequestState::RequestState(
    ngx_http_request_t* r, const LocationConf& location, std::span<AppliedLimit> limits,
    std::span<RemoteLimit*> sent) noexcept
    : request(r), conf(location), decision(limits, sent, rules_of(location), node_clock, *this)
{
    if (conf.retry_jitter != 0) {
        random_ = static_cast<std::uint32_t>(ngx_random());
    }
    if (conf.limits->charges) {
        charging.push_back(*this);
    }
}

RequestState* RequestState::find(ngx_http_request_t* r) noexcept
{
    auto* state = static_cast<RequestState*>(ngx_http_get_module_ctx(r, ngx_http_ratelimit_module));
    if (state != nullptr || (!r->internal && !r->filter_finalize)) {
        return state;
    }
    for (auto* cleanup = r->pool->cleanup; cleanup != nullptr; cleanup = cleanup->next) {
        // The pool is the main request's, and of its subrequests.
        if (cleanup->handler == destroy
            && static_cast<RequestState*>(cleanup->data)->request == r) {
            state = static_cast<RequestState*>(cleanup->data);
            ngx_http_set_ctx(r, state, ngx_http_ratelimit_module);
            return state;
        }
    }
    return nullptr;
}

RequestState* RequestState::asked_before(ngx_http_request_t* r) noexcept
{
    if (r == r->main || !r->main->internal) {
        return nullptr;
    }
    const LocationConf* conf = &location_conf(r);
    for (auto* cleanup = r->pool->cleanup; cleanup != nullptr; cleanup = cleanup->next) {
        if (cleanup->handler != destroy) {
            continue;
        }
        auto* state = static_cast<RequestState*>(cleanup->data);
        if (state->request != r->main && &state->conf == conf && state->stage == Stage::done) {
            ngx_http_set_ctx(r, state, ngx_http_ratelimit_module);
            return state;
        }
    }
    return nullptr;
}

RequestState* RequestState::make(ngx_http_request_t* r, std::span<AppliedLimit> limits)
{
    static_assert(alignof(RequestState) <= NGX_ALIGNMENT);
    const auto sent = nginx::make_array<RemoteLimit*>(r->pool, limits.size());
    // Not nginx::make: `find` recognises the state by its cleanup handler.
    auto* cleanup = ngx_pool_cleanup_add(r->pool, sizeof(RequestState));
    if (sent.data() == nullptr || cleanup == nullptr) {
        return nullptr;
    }
    auto* state = new (cleanup->data) RequestState(r, location_conf(r), limits, sent);
    cleanup->handler = destroy;
    ngx_http_set_ctx(r, state, ngx_http_ratelimit_module);
    return state;
}

bool RequestState::decide(Resume resume)
{
    resume_ = resume;
    return decision.start();
}

std::optional<std::int64_t> RequestState::retry_after() const noexcept
{
    const Outcome& outcome = decision.outcome();
    if (!outcome.refused || !outcome.retry_after) {
        return std::nullopt;
    }
    return spread(
        retry_after_seconds(*outcome.retry_after), static_cast<std::uint32_t>(conf.retry_jitter),
        random_);
}

void RequestState::decided() noexcept
{
    waited = ngx_current_msec - started;
    resume_(*this);
}

}  // namespace ratelimit::http

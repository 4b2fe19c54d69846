#include "http/settle_charges.h"

#include "http/evaluate_limits.h"
#include "http/request_state.h"
#include "nginx/guarded.h"

namespace ratelimit::http {

namespace {

void count(const AppliedLimit& limit, std::int64_t cost) noexcept
{
    using Units = ZoneCounters::Units;
    ZoneCounters counters = limit.zone->memory().counters();
    counters.add(Units::passed, cost);
    if (cost > limit.cost) {
        counters.add(Units::charged, cost - limit.cost);
    } else if (cost < limit.cost) {
        counters.add(Units::refunded, limit.cost - cost);
    }
}

void settle(ngx_http_request_t* r, const RequestState& state)
{
    const LimitSet& set = *state.conf.limits;
    for (const AppliedLimit& limit : state.decision.limits()) {
        const LimitConf& conf = set.limits[limit.configured];
        if (conf.charges() && state.decision.passed()) {
            const std::int64_t cost = evaluate_charge(r, conf).value_or(limit.cost);
            state.decision.settle(limit, cost);
            if (state.decision.counted(limit)) {
                count(limit, cost);
            }
        }
    }
}

}  // namespace

ngx_int_t settle_charges(ngx_http_request_t* r) noexcept
{
    return nginx::guarded(r->connection->log, ngx_int_t{ NGX_ERROR }, [r] {
        // Subrequests are logged too, if log_subrequest says so.
        const RequestState* state = r == r->main ? RequestState::find(r) : nullptr;
        if (state != nullptr && state->conf.limits->charges) {
            settle(r, *state);
        }
        return ngx_int_t{ NGX_OK };
    });
}

void settle_running_requests() noexcept
{
    RequestState::each_with_charges([](const RequestState& state) {
        ngx_http_request_t* r = state.request;
        nginx::guarded(r->connection->log, [&] { settle(r, state); });
    });
}

}  // namespace ratelimit::http

#include "http/api/check_handler.h"

#include "http/api/response.h"
#include "http/evaluate_limits.h"
#include "http/request_state.h"
#include "limit/json_text.h"
#include "limit/rate_headers.h"
#include "nginx/guarded.h"
#include "node/clocks.h"
#include "zone/node_state.h"

#include <algorithm>
#include <span>

namespace ratelimit::http {

namespace {

/// Whether a lease of this node would pay for the request. It takes nothing from it.
bool has_lease(AppliedLimit& limit)
{
    spend_lease(limit, node_clock.time_of(*limit.zone));
    const bool has = limit.lease.has_value();
    refund_lease(limit);
    return has;
}

/// Whether a request with the costs in `wanted` would be refused in the states in `found`.
bool would_refuse(std::span<const AppliedLimit> found, std::span<AppliedLimit> wanted)
{
    return std::any_of(found.begin(), found.end(), [wanted](const AppliedLimit& limit) {
        const auto same =
            std::find_if(wanted.begin(), wanted.end(), [&limit](const AppliedLimit& other) {
                return other.configured == limit.configured;
            });
        return limit.decided && !limit.shadow && same != wanted.end()
            && limit.state.remaining < same->cost && !has_lease(*same);
    });
}

std::string body_of(bool passes, std::span<const AppliedLimit> limits)
{
    JsonText json;
    json.begin_object().flag("allowed", passes).begin_array("limits");
    for (const AppliedLimit& limit : limits) {
        if (limit.decided && !limit.shadow) {
            json.begin_object()
                .text("zone", limit.zone->name)
                .number("limit", limit.policy.limit())
                .number("remaining", limit.state.remaining)
                .number("reset", whole_seconds(shown_reset(limit.policy, limit.state)))
                .end_object();
        }
    }
    json.end_array();
    return json.finish();
}

ngx_int_t answer(ngx_http_request_t* r)
{
    if (r == r->main && ngx_http_discard_request_body(r) != NGX_OK) {
        r->keepalive = 0;
    }
    const LocationConf& conf = location_conf(r);
    const RequestState* state = RequestState::find(r);
    std::span<const AppliedLimit> limits;
    bool passes = true;
    if (state != nullptr) {
        limits = state->decision.limits();
        if (conf.check == check_peeks) {
            const auto wanted = evaluate_limits(r, *conf.limits);
            if (!wanted) {
                return NGX_HTTP_INTERNAL_SERVER_ERROR;
            }
            passes = conf.dry_run != 0 || !would_refuse(limits, *wanted);
        }
    }
    const ngx_uint_t status = passes ? NGX_HTTP_OK
        : r == r->main               ? conf.refuse_status
                                     : NGX_HTTP_FORBIDDEN;
    return send_response(r, status, json_type, body_of(passes, limits));
}

}  // namespace

ngx_int_t check_handler(ngx_http_request_t* r) noexcept
{
    return nginx::guarded(
        r->connection->log, ngx_int_t{ NGX_HTTP_INTERNAL_SERVER_ERROR }, [r] { return answer(r); });
}

}  // namespace ratelimit::http

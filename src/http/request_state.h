#pragma once

#include "base/list.h"
#include "conf/conf.h"
#include "zone/decision.h"

#include <optional>
#include <span>

namespace ratelimit::http {

struct UsageReader;

/// Whether limits apply to this request itself: to main requests, and to subrequests to a location
/// with ratelimit_check.
inline bool is_limited(ngx_http_request_t* r) noexcept
{
    return r == r->main || location_conf(r).check != check_none;
}

/// The only decision of a request. It lives in the request's pool, where `find` finds it also
/// after an internal redirect, which clears nginx's module contexts. While a check is in flight the
/// request is blocked, so the pool outlives the check.
class RequestState final : public Decision::Owner, public Link<RequestState> {
public:
    enum class Stage : std::uint8_t {
        waiting,   // the check is in flight, the request parked
        answered,  // the decision is made, the request not yet resumed
        delaying,  // passed, and parked until its delay is over
        done,
    };

    /// Null: the request has none yet.
    static RequestState* find(ngx_http_request_t* r) noexcept;

    /// The decision on an earlier subrequest to the location of `r` for the same main request,
    /// after whose internal redirect auth_request asks again. Null: there was none.
    static RequestState* asked_before(ngx_http_request_t* r) noexcept;

    /// Makes the state of a request that these limits apply to. Null: out of memory.
    static RequestState* make(ngx_http_request_t* r, std::span<AppliedLimit> limits);

    RequestState(
        ngx_http_request_t* r, const LocationConf& conf, std::span<AppliedLimit> limits,
        std::span<RemoteLimit*> sent) noexcept;

    using Resume = void (*)(RequestState& state) noexcept;

    /// Calls `visit` with each state of this worker whose limits have charge=, until its request is
    /// freed.
    template <class Visit>
    static void each_with_charges(Visit&& visit)
    {
        charging.each(visit);
    }

    /// True: a check is in flight, and `resume` is called when the decision is made. False: the
    /// decision is made already, and `resume` is not called.
    bool decide(Resume resume);

    void decided() noexcept override;

    /// The Retry-After of a refusal, in seconds: the same wherever it is shown. Empty: the request
    /// was not refused by a limit, or would never pass.
    std::optional<std::int64_t> retry_after() const noexcept;

    ngx_http_request_t* const request;
    const LocationConf& conf;  // of the location whose limits were checked
    Stage stage = Stage::done;
    bool hides_client_gone = false;  // client_gone.h
    Decision decision;
    ngx_msec_t started = ngx_current_msec;
    ngx_msec_t waited = 0;         // for the reply of the check
    UsageReader* usage = nullptr;  // of the response; null: it is not read

private:
    static inline List<RequestState> charging;

    Resume resume_ = nullptr;
    std::uint32_t random_ = 0;  // for ratelimit_retry_jitter
};

}  // namespace ratelimit::http

#pragma once

#include "conf/conf.h"
#include "http/api/redis_query.h"
#include "http/api/response.h"
#include "redis/call.h"

#include <optional>
#include <string_view>
#include <utility>

namespace ratelimit::http {

inline ngx_int_t send_failure(ngx_http_request_t* r, redis::Failure failure)
{
    const auto text = [failure]() -> std::string_view {
        switch (failure) {
        case redis::Failure::error_reply:
            return "Redis answered with an error";
        case redis::Failure::slot_migrating:
            return "the cluster is moving the keys of the fleet, send the change again";
        default:
            return no_answer;
        }
    };
    return send_error(r, NGX_HTTP_SERVICE_UNAVAILABLE, text());
}

/// A query that is one call to the fleet's Redis. A call that fails is answered with 503.
template <class FleetCall>
class FleetQuery : public RedisQuery, protected FleetCall {
public:
    template <class... Parameters>
    explicit FleetQuery(ngx_http_request_t* r, Parameters&&... parameters)
        : RedisQuery(r), FleetCall(std::forward<Parameters>(parameters)...)
    {
    }

    ngx_int_t ask()
    {
        return main_conf(r_).fleet->redis().client().send(*this)
            ? wait()
            : send_error(r_, NGX_HTTP_SERVICE_UNAVAILABLE, no_answer);
    }

protected:
    virtual ngx_int_t show() = 0;
    virtual ngx_int_t show_failure(redis::Failure failure) { return send_failure(r_, failure); }

private:
    ngx_int_t respond() final { return failure_ ? show_failure(*failure_) : show(); }
    void on_failure(redis::Failure failure) noexcept final
    {
        failure_ = failure;
        answered();
    }

    std::optional<redis::Failure> failure_;
};

}  // namespace ratelimit::http

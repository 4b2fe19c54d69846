#pragma once

#include "conf/conf.h"
#include "http/api/redis_query.h"
#include "http/api/response.h"
#include "redis/call.h"

#include <optional>
#include <string_view>
#include <utility>

namespace ratelimit::http {

inline ngx_int_t send_failure(ngx_http_request_t* r, redis::Fate fate)
{
    const auto text = [fate]() -> std::string_view {
        switch (fate) {
        case redis::Fate::refused:
        case redis::Fate::failed:
            return "Redis answered with an error";
        case redis::Fate::one_by_one:
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
    virtual ngx_int_t show_failure(redis::Fate fate) { return send_failure(r_, fate); }

private:
    ngx_int_t respond() final { return fate_ ? show_failure(*fate_) : show(); }
    void ended(redis::Fate fate) noexcept final
    {
        fate_ = fate;
        answered();
    }

    std::optional<redis::Fate> fate_;
};

}  // namespace ratelimit::http

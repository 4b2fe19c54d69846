#pragma once

#include "nginx/ngx.h"

#include <exception>
#include <utility>

namespace ratelimit::nginx {

/// Returns the result of `body`. If `body` throws, logs one line and returns `failed`. All
/// callbacks that may throw use it, so that no exception reaches nginx.
template <class Result, class Body>
Result guarded(ngx_log_t* log, Result failed, Body&& body) noexcept
{
    try {
        return std::forward<Body>(body)();
    } catch (const std::exception& error) {
        ngx_log_error(NGX_LOG_ERR, log, 0, "ratelimit: %s", error.what());
    } catch (...) {
        ngx_log_error(NGX_LOG_ERR, log, 0, "ratelimit: unknown failure");
    }
    return failed;
}

template <class Body>
void guarded(ngx_log_t* log, Body&& body) noexcept
{
    guarded(log, false, [&] {
        std::forward<Body>(body)();
        return true;
    });
}

}  // namespace ratelimit::nginx

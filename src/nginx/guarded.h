#pragma once

#include "nginx/ngx.h"

#include <exception>
#include <utility>

namespace ratelimit::nginx {

/// Runs `body`; an exception ends here, as one log line, and `failed` is returned. Every callback
/// that nginx calls and that may allocate goes through it.
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

#pragma once

#include <chrono>
#include <ctime>

namespace ratelimit::nginx {

/// Time since the epoch. Unlike nginx's, it is in microseconds.
inline std::chrono::microseconds local_time() noexcept
{
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::seconds{ now.tv_sec } + std::chrono::nanoseconds{ now.tv_nsec });
}

/// Monotonic time, the same for all processes of this machine.
inline std::chrono::microseconds monotonic_time() noexcept
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::seconds{ now.tv_sec } + std::chrono::nanoseconds{ now.tv_nsec });
}

/// monotonic_time to a tick of the kernel (milliseconds), which is cheaper to read. Unlike nginx's
/// time, which is set when a turn of its loop begins, it is right after the process was stopped.
inline std::chrono::milliseconds coarse_time() noexcept
{
#ifdef CLOCK_MONOTONIC_COARSE
    constexpr clockid_t clock = CLOCK_MONOTONIC_COARSE;
#else
    constexpr clockid_t clock = CLOCK_MONOTONIC;
#endif
    timespec now{};
    clock_gettime(clock, &now);
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::seconds{ now.tv_sec } + std::chrono::nanoseconds{ now.tv_nsec });
}

}  // namespace ratelimit::nginx

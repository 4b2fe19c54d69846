#pragma once

#include <chrono>
#include <ctime>

namespace ratelimit::nginx {

/// This machine's time since the epoch, to the microsecond, which nginx's own is not.
inline std::chrono::microseconds local_time() noexcept
{
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::seconds{ now.tv_sec } + std::chrono::nanoseconds{ now.tv_nsec });
}

/// A time that only goes on, and is the same for all processes of this machine.
inline std::chrono::microseconds monotonic_time() noexcept
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::seconds{ now.tv_sec } + std::chrono::nanoseconds{ now.tv_nsec });
}

/// The same of the moment, where milliseconds will do: never older than a tick of the kernel's,
/// also after a stop of the process, and cheaper. nginx's own time is that of the turn's begin.
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

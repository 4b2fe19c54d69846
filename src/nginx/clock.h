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

}  // namespace ratelimit::nginx

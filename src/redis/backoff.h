#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// Pauses between attempts to connect: 50 ms, doubling to 500 ms, each cut by up to a half at
/// random, so that a fleet whose Redis comes back does not come back all at once.
class Backoff {
public:
    static constexpr milliseconds first{ 50 };
    static constexpr milliseconds longest{ 500 };

    explicit Backoff(std::uint_fast32_t seed) : random_(seed) {}

    milliseconds next()
    {
        const milliseconds pause = pause_;
        pause_ = std::min(pause_ * 2, longest);
        std::uniform_int_distribution<milliseconds::rep> jittered(pause.count() / 2, pause.count());
        return milliseconds{ jittered(random_) };
    }

    void reset() noexcept { pause_ = first; }

private:
    std::minstd_rand random_;
    milliseconds pause_ = first;
};

}  // namespace ratelimit::redis

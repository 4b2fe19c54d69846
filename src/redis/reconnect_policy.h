#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// How a connection was lost.
enum class Loss : std::uint8_t {
    good,       // it had answered, and is made again at once
    elsewhere,  // it was of no use, and another address of the server's name is tried at once
    failed,     // it could not be made, or was closed
    starved,    // it could not be made, as this process has no room for it
    silent,     // no reply in time
    rejected,   // it was answered with an error while it was set up
    /// Its server lets itself be connected to, but answers no call, or each with an error that says
    /// that it is of no use.
    refused,
};

/// When a lost connection is made again: at once if it was of use, so that a server that accepts
/// connections and closes them is not connected to in a loop. Pauses are 50 ms, doubling to 500 ms,
/// each cut by up to a half at random, so that a fleet whose Redis comes back does not come back
/// all at once. `now` is the loop's time.
class ReconnectPolicy {
public:
    void attempt(milliseconds now) noexcept
    {
        attempted_ = now;
        answered_ = false;
        ready_at_.reset();
    }
    void ready(milliseconds now) noexcept { ready_at_ = now; }
    /// A call, and not with an error: a server that takes scripts and refuses calls is not
    /// connected to at once.
    void answered() noexcept
    {
        answered_ = true;
        lost_unanswered_ = 0;
        pause_ = first_pause;
    }
    /// The next attempt is not a repetition of the last one.
    void reset() noexcept { pause_ = first_pause; }

    milliseconds attempted() const noexcept { return attempted_; }

    /// The connection was of use, whether it was used or not.
    bool proven(milliseconds now) const noexcept
    {
        return ready_at_ && (answered_ || now - *ready_at_ >= proven_after);
    }

    /// What a loss is when the connection's past is taken into account. `calls`: some were lost.
    Loss judge(Loss loss, bool calls, milliseconds now) noexcept
    {
        const bool closed = loss == Loss::failed;
        if (closed && proven(now)) {
            return Loss::good;
        }
        const bool unanswered = calls && ready_at_ && !answered_;
        lost_unanswered_ += unanswered ? 1 : 0;
        // That a connection was ready says no longer that the server is up.
        const bool again = unanswered && lost_unanswered_ > 1;
        return again && (closed || loss == Loss::silent) ? Loss::refused : loss;
    }

    /// Before the next attempt. `probing`: the attempts find out when a silent server answers.
    milliseconds pause(bool probing, milliseconds now)
    {
        if (probing) {
            return std::max(attempted_ + probe_pause - now, milliseconds{ 0 });
        }
        using Jitter = std::uniform_int_distribution<milliseconds::rep>;
        const milliseconds pause{ Jitter(pause_.count() / 2, pause_.count())(random_) };
        pause_ = std::min(pause_ * 2, longest_pause);
        return pause;
    }

private:
    static constexpr milliseconds probe_pause{ 100 };  // from attempt to attempt
    static constexpr milliseconds proven_after{ 100 };
    static constexpr milliseconds first_pause{ 50 };
    static constexpr milliseconds longest_pause{ 500 };

    std::minstd_rand random_{ std::random_device{}() };
    milliseconds pause_ = first_pause;
    milliseconds attempted_{ 0 };
    std::optional<milliseconds> ready_at_;
    bool answered_ = false;         // a call, since it is ready
    unsigned lost_unanswered_ = 0;  // connections in a row that took calls and answered none
};

}  // namespace ratelimit::redis

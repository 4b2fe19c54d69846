#pragma once

#include "base/random.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// How a connection was lost.
enum class Loss : std::uint8_t {
    good,      // it, or one shortly before it, had worked: it is made again at once
    failed,    // it could not be made, or was closed
    starved,   // this process has no resources for another connection
    silent,    // no reply in time
    rejected,  // an error reply during the handshake
    /// The server accepts connections, but replies to no call, or only with an error that means
    /// that it cannot be used.
    refused,
};

/// The server did not answer, and may be away.
constexpr bool is_silence(Loss loss) noexcept
{
    return loss == Loss::failed || loss == Loss::silent;
}

/// Decides when a lost connection is made again: at once if it had worked, and then a few more
/// times at once if it is closed before it works again. Otherwise after a pause, so that a server
/// that accepts connections and closes them is not connected to in a loop. Pauses are 50 ms,
/// doubling to 500 ms, each shortened by up to a half at random, so that the nodes of a fleet do
/// not all reconnect at the same moment. `now` is the loop's time.
class ReconnectPolicy {
public:
    void attempt(milliseconds now) noexcept
    {
        attempted_ = now;
        accepted_ = false;
        answered_ = false;
        ready_at_.reset();
    }
    void accepted() noexcept { accepted_ = true; }
    void ready(milliseconds now) noexcept { ready_at_ = now; }
    /// A call has a reply that is not an error. Replies to the handshake do not count: a server may
    /// load scripts and then refuse calls.
    void answered() noexcept
    {
        answered_ = true;
        lost_unanswered_ = 0;
        pause_ = first_pause;
    }
    bool has_answered() const noexcept { return answered_; }
    /// The next pause is the shortest again.
    void reset() noexcept { pause_ = first_pause; }

    milliseconds attempted() const noexcept { return attempted_; }

    /// Whether the connection has worked: a call was answered, or it stayed open for a while.
    bool proven(milliseconds now) const noexcept
    {
        return ready_at_ && (answered_ || now - *ready_at_ >= proven_after);
    }

    /// Corrects the kind of a loss by the history of the connection. `calls`: calls were lost.
    Loss judge(Loss loss, bool calls, milliseconds now) noexcept
    {
        const bool closed = loss == Loss::failed;
        if (closed && proven(now)) {
            repetitions_ = most_repetitions;
            return Loss::good;
        }
        if (closed && accepted_ && repetitions_ > 0) {
            --repetitions_;
            return Loss::good;
        }
        const bool unanswered = calls && ready_at_ && !answered_;
        lost_unanswered_ += unanswered ? 1 : 0;
        // Twice in a row, a connection was ready and answered no call: the server is not up.
        const bool again = unanswered && lost_unanswered_ > 1;
        return again && (closed || loss == Loss::silent) ? Loss::refused : loss;
    }

    /// The pause before the next attempt. `probing`: find out soon when a silent server answers.
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
    static constexpr milliseconds probe_pause{ 100 };  // between the starts of two attempts
    static constexpr milliseconds proven_after{ 100 };
    static constexpr milliseconds first_pause{ 50 };
    static constexpr milliseconds longest_pause{ 500 };
    static constexpr unsigned most_repetitions = 3;

    std::minstd_rand random_{ static_cast<std::uint_fast32_t>(random_number()) };
    milliseconds pause_ = first_pause;
    milliseconds attempted_{ 0 };
    bool accepted_ = false;  // by the server
    std::optional<milliseconds> ready_at_;
    bool answered_ = false;         // a call was answered on this connection
    unsigned repetitions_ = 0;      // how many attempts without a pause are left
    unsigned lost_unanswered_ = 0;  // how many connections in a row answered none of their calls
};

}  // namespace ratelimit::redis

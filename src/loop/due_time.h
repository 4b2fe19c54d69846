#pragma once

#include <algorithm>
#include <chrono>

namespace ratelimit {

using std::chrono::milliseconds;

/// When a timer is due, by the current time. An event loop's own timers are wrong in two cases: a
/// timer that is started late in a long turn fires early, and a process that was stopped fires its
/// timers before it reads what arrived meanwhile. So a timer that fires late is extended by its
/// lateness, at most by its delay, and at most `most_extensions` times: on an overloaded machine,
/// where every timer is late, it fires nevertheless.
class DueTime {
public:
    /// Less lateness than this is normal in a busy loop.
    static constexpr milliseconds tolerance{ 20 };
    static constexpr int most_extensions = 3;

    /// `usual`: how late the loop's timers fire without a stop.
    void start(milliseconds now, milliseconds delay, milliseconds usual = {}) noexcept
    {
        usual_ = usual;
        due_ = now + delay;
        delay_ = delay;
        extensions_ = 0;
    }

    /// Call it when the loop's timer fires. Returns the time left; 0: the timer is due.
    milliseconds left(milliseconds now) noexcept
    {
        if (now < due_) {
            return due_ - now;
        }
        const milliseconds late = now - due_;
        if (late < tolerance + usual_ || extensions_ == most_extensions || delay_.count() == 0) {
            return milliseconds{ 0 };
        }
        ++extensions_;
        const milliseconds more = std::min(late, delay_);
        due_ = now + more;
        return more;
    }

private:
    milliseconds due_{ 0 };
    milliseconds delay_{ 0 };
    milliseconds usual_{ 0 };
    int extensions_ = 0;  // since start
};

}  // namespace ratelimit

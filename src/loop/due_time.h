#pragma once

#include <algorithm>
#include <chrono>

namespace ratelimit {

using std::chrono::milliseconds;

/// When a timer is due, by a clock of the moment. An event loop's own idea of that may be wrong in
/// both directions: a timer that is started late in a long turn fires early, and a process that was
/// stopped fires its timers before it has read what arrived meanwhile. So a timer that fires late
/// waits once more, for as long as the process was away, at most for its delay. A timer that is
/// late again and again is that of a machine without time to spare: it fires in the end.
class DueTime {
public:
    /// A busy loop is late by this much, too.
    static constexpr milliseconds tolerance{ 20 };
    static constexpr int most_excuses = 3;

    void start(milliseconds now, milliseconds delay) noexcept
    {
        due_ = now + delay;
        delay_ = delay;
        excuses_ = 0;
    }

    /// To be called when the loop's timer fires. 0: it is due; else how long it has to wait still.
    milliseconds left(milliseconds now) noexcept
    {
        if (now < due_) {
            return due_ - now;
        }
        const milliseconds late = now - due_;
        if (late < tolerance || excuses_ == most_excuses || delay_.count() == 0) {
            return milliseconds{ 0 };
        }
        ++excuses_;
        const milliseconds more = std::min(late, delay_);
        due_ = now + more;
        return more;
    }

private:
    milliseconds due_{ 0 };
    milliseconds delay_{ 0 };
    int excuses_ = 0;  // since it was started
};

}  // namespace ratelimit

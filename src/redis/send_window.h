#pragma once

#include "redis/call.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ratelimit::redis {

/// How many owed messages to one server may be in flight at one time: as many as it answers in
/// time, but at least a few: it executes also what it answers late. As TCP's slow start (RFC 5681):
/// little at first, twice as much when as much was answered, and half as much after a timeout. So
/// workers that owe much do not keep Redis from their checks, however many they are.
class SendWindow {
public:
    /// A connection was lost: begins with a quarter of the size.
    void restart() noexcept
    {
        not_before_ = milliseconds{ 0 };
        resize(size_ / 4);
    }

    bool empty() const noexcept { return in_flight_ == 0; }
    /// `rank`: 0 to 2, how long it can wait. A quarter of the room is only for rank 0, and another
    /// one not for rank 2: a more urgent message may come while others are in flight.
    bool has_room(std::size_t rank) const noexcept { return in_flight_ < size_ - rank * size_ / 4; }
    /// By the loop's clock: the server did not accept or execute the last one.
    milliseconds not_before() const noexcept { return not_before_; }
    void sent() noexcept { ++in_flight_; }
    enum class Ended : std::uint8_t {
        answered,
        timed_out,  // it was written, and had no reply in time
        failed,     // that says nothing about how fast Redis is
    };
    void ended(Ended how, milliseconds now) noexcept
    {
        --in_flight_;
        if (how == Ended::answered && ++answered_ >= size_) {
            resize(2 * size_);
        } else if (how == Ended::timed_out && now >= next_shrink_) {
            next_shrink_ = now + between_shrinks;  // others of the same burst time out with it
            resize(size_ / 2);
        } else if (how == Ended::failed) {
            not_before_ = now + after_failure;
        }
    }

private:
    static constexpr std::size_t least = 10;  // also the first
    static constexpr std::size_t most = 200;
    static constexpr milliseconds between_shrinks{ 100 };
    static constexpr milliseconds after_failure{ 10 };

    void resize(std::size_t size) noexcept
    {
        size_ = std::clamp(size, least, most);
        answered_ = 0;
    }

    std::size_t size_ = least;
    std::size_t answered_ = 0;  // since it has this size
    std::size_t in_flight_ = 0;
    milliseconds next_shrink_{ 0 };
    milliseconds not_before_{ 0 };
};

}  // namespace ratelimit::redis

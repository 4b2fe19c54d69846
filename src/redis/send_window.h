#pragma once

#include "redis/call.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ratelimit::redis {

/// How many owed messages to one server may be in flight at one time: as many as it answers in
/// time. As TCP's slow start (RFC 5681): little at first, twice as much when as much was answered,
/// and half as much after a timeout. So workers that owe much do not keep Redis from their checks.
/// A few are always in flight, in one command: Redis also executes messages that it answers late.
class SendWindow {
public:
    /// A connection was lost: begins with a quarter of the size, but not below `first` if it was
    /// above.
    void restart() noexcept
    {
        not_before_ = milliseconds{ 0 };
        resize(std::max(std::min(size_, first), size_ / 4));
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
            resize(std::min(2 * size_, most));
        } else if (how == Ended::timed_out && now >= next_shrink_) {
            next_shrink_ = now + between_shrinks;  // others of the same burst time out with it
            resize(std::max(size_ / 2, least));
        } else if (how == Ended::failed) {
            not_before_ = now + after_failure;
        }
    }

private:
    static constexpr std::size_t least = 4;
    static constexpr std::size_t first = 10;
    static constexpr std::size_t most = 200;
    static constexpr milliseconds between_shrinks{ 100 };
    static constexpr milliseconds after_failure{ 10 };

    void resize(std::size_t size) noexcept
    {
        size_ = size;
        answered_ = 0;
    }

    std::size_t size_ = first;
    std::size_t answered_ = 0;  // since it has this size
    std::size_t in_flight_ = 0;
    milliseconds next_shrink_{ 0 };
    milliseconds not_before_{ 0 };
};

}  // namespace ratelimit::redis

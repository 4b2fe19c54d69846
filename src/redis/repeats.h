#pragma once

#include "base/list.h"
#include "loop/event_loop.h"
#include "redis/repeat_window.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace ratelimit::redis {

/// What is sent again after a fault, and no request waits for.
class Repeated : public Link<Repeated> {
protected:
    ~Repeated() = default;
    /// It is sent, or need not be sent.
    void stop_waiting() noexcept
    {
        unlink();
        list_ = nullptr;
    }

private:
    friend class Repeats;

    /// Client::server_of its shard.
    virtual std::uint32_t server() const noexcept = 0;
    /// Sends it. Repeats::ended must be called when it has ended. False: it was not accepted, and
    /// has ended; it may wait again.
    virtual bool repeat() noexcept = 0;

    List<Repeated>* list_ = nullptr;  // it waits there
    milliseconds due_{ 0 };
    milliseconds lapses_{ 0 };
    RepeatWindow* window_ = nullptr;  // it is in flight there
};

/// What one worker sends again after a fault, of all zones. Each server has a queue, so that what
/// one should know does not wait for another one that is slow. In a queue that of the lowest rank
/// goes first, then what lapses first, then what has waited longest. As much is in flight as the
/// server answers in time (RepeatWindow).
class Repeats {
public:
    struct Place {
        std::size_t group;  // the zone's, by add_group()
        std::size_t rank;   // 0: held; 1: counts, and should not; 2: Redis may know it
    };

    explicit Repeats(EventLoop& loop);
    ~Repeats();
    Repeats(const Repeats&) = delete;
    Repeats& operator=(const Repeats&) = delete;

    std::size_t add_group() noexcept { return ++groups_; }
    /// From now on it waits, for `pause` at least. It keeps its turn if it waits there already.
    /// `left`: for how long Redis still knows what was stated last.
    void add(Repeated& what, const Place& place, milliseconds pause, milliseconds left) noexcept;
    /// It was answered or has failed. No effect if Repeats has not sent it.
    void ended(Repeated& what, RepeatWindow::Ended how) noexcept;
    /// Shards have other servers.
    void servers_changed() noexcept;
    /// A connection to this server was lost.
    void restart(std::uint32_t server) noexcept;
    /// While something of rank 0 or 1 waits, a process that leaves does not exit for this time.
    void delay_exit(milliseconds time) noexcept;
    /// Calls `remove` with those of a group and rank, until it has removed one and returns true.
    template <class Remove>
    void remove_one(const Place& place, Remove&& remove) noexcept
    {
        for (auto& [server, queue] : queues_) {
            const auto found = queue.waiting.find(place.group);
            if (found != queue.waiting.end() && found->second[place.rank].find(remove) != nullptr) {
                return;
            }
        }
    }

private:
    using Lists = std::array<List<Repeated>, 3>;  // by rank
    struct Queue {
        RepeatWindow window;
        std::map<std::size_t, Lists> waiting;  // by group
        milliseconds not_before{ 0 };          // the server did not accept one
    };

    List<Repeated>& list_of(std::uint32_t server, const Place& place) noexcept;
    void move_all() noexcept;
    static Repeated* next(Queue& queue, std::size_t rank, milliseconds now) noexcept;
    void send(Queue& queue) noexcept;
    void fire() noexcept;
    void watch() noexcept;
    void wake(milliseconds at) noexcept;

    EventLoop& loop_;
    std::map<std::uint32_t, Queue> queues_;  // by server; that of 0 always exists
    std::size_t groups_ = 0;
    bool firing_ = false;
    bool servers_changed_ = false;
    milliseconds delays_exit_until_{ 0 };
    milliseconds timer_due_{ 0 };
    std::unique_ptr<Timer> timer_;
};

}  // namespace ratelimit::redis

#pragma once

#include "fleet/sync.h"

#include <functional>
#include <memory>
#include <string>

namespace ratelimit::fleet {

/// A worker's part in the fleet. One worker of a node talks to Redis, once a second. If it exits,
/// dies or hangs, or if a call of it fails, another one calls within 1.5 seconds after its last
/// call that was answered, or this one does if there is no other.
class Session final : private Sync::Owner {
public:
    /// The session's calls to other parts of this node.
    class Node {
    public:
        virtual ~Node() = default;
        /// A JSON object that other nodes see of this one.
        virtual std::string state() = 0;
        /// Whether this worker goes on. If not, another one talks to Redis.
        virtual bool stays() const noexcept = 0;
        /// Redis has not answered this worker's calls for some seconds. Once until connected, in
        /// all workers.
        virtual void disconnected() noexcept = 0;
        virtual void connected() noexcept = 0;
        /// This many overrides have no room in memory. Once while the memory lasts.
        virtual void left_out(std::uint64_t count) noexcept = 0;
    };

    static constexpr milliseconds silence{ 3000 };  // of Redis, which is then away

    Session(const Sync::Parts& parts, Node& node);
    ~Session() override;
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// Reads the changes now, in any worker, such as after a change by this node.
    void hurry() noexcept;

private:
    void tick() noexcept;
    void sync() noexcept;
    void give_up() noexcept;
    milliseconds now() const noexcept;

    void synced(Sync::End end) noexcept override;

    Sync::Parts parts_;
    Node& node_;
    Sync sync_;
    std::unique_ptr<Timer> timer_;
    milliseconds called_{ 0 };
    milliseconds asked_{ 0 };        // since when this worker's calls have no answer
    milliseconds asked_after_{ 0 };  // the last answer before that
    bool leads_ = false;
    bool again_ = false;  // after the call in flight, another one is wanted
};

}  // namespace ratelimit::fleet

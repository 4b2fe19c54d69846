#include "fleet/session.h"

#include <chrono>

namespace ratelimit::fleet {

namespace {

constexpr milliseconds between_calls{ 1000 };
constexpr milliseconds until_loaded{ 100 };   // between tries
constexpr milliseconds between_looks{ 500 };  // of a worker that does not speak
constexpr milliseconds lease{ 1500 };
constexpr milliseconds silence{ 3000 };  // after which it is logged

}  // namespace

Session::Session(const Parts& parts)
    : parts_(parts),
      sync_({ parts.memory, parts.client, parts.script, parts.keys, parts.clock, *this,
              parts.storage }),
      timer_(parts.client.make_timer([this] { tick(); }))
{
    timer_->cancelable(true);
    timer_->start(milliseconds{ 1 });
}

Session::~Session()
{
    parts_.memory.stop_speaking();
}

milliseconds Session::now() const noexcept
{
    return std::chrono::duration_cast<milliseconds>(parts_.clock.monotonic());
}

milliseconds Session::pause() const noexcept
{
    if (!speaks_) {
        return between_looks;
    }
    return parts_.memory.loaded() ? between_calls : until_loaded;
}

void Session::tick() noexcept
{
    if (!parts_.node.stays()) {
        parts_.memory.stop_speaking();
        return;
    }
    speaks_ = parts_.memory.follows(parts_.storage) && parts_.memory.speak(now(), lease);
    if (!speaks_) {
        parts_.memory.stop_speaking();  // a later configuration has another Redis
    } else {
        FleetMemory::Shared& shared = parts_.memory.shared();
        const auto heard =
            std::chrono::duration_cast<milliseconds>(microseconds{ shared.heard_us.load() });
        if (now() - heard > silence && shared.connected.exchange(false)) {
            parts_.node.disconnected();
        }
        say();
    }
    timer_->start(pause());
}

void Session::say() noexcept
try {
    sync_.start(parts_.node.state());
} catch (const std::exception&) {
    return;  // out of memory: the next tick tries again
}

void Session::hurry() noexcept
{
    if (sync_.running()) {
        again_ = true;
    } else {
        say();
    }
}

void Session::synced(Sync::End end) noexcept
{
    FleetMemory::Shared& shared = parts_.memory.shared();
    if (end == Sync::End::known && !shared.connected.exchange(true)) {
        parts_.node.connected();
    }
    if (const auto count = shared.left_out.load();
        count > 0 && !shared.left_out_logged.exchange(true)) {
        parts_.node.left_out(count);
    }
    if (std::exchange(again_, false)) {
        say();
    }
}

}  // namespace ratelimit::fleet

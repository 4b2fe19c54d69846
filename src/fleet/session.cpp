#include "fleet/session.h"

#include <algorithm>
#include <chrono>

namespace ratelimit::fleet {

namespace {

// A change is in force within two seconds also if a call fails, or if its worker dies or is
// stopped: another worker calls at its next look. The longest way is a call that has no answer: it
// begins a second after the one before, and the next one 600 ms later at the latest.
constexpr milliseconds between_calls{ 1000 };
constexpr milliseconds between_looks{ 250 };   // of a worker that does not lead
constexpr milliseconds longest_answer{ 250 };  // then another worker may try
constexpr milliseconds after_failure{ 350 };   // all other workers look before this one
constexpr milliseconds lease{ 1250 };
constexpr milliseconds until_next_part{ 50 };
constexpr milliseconds asked_in_vain{ 2000 };  // in it by one worker at least

}  // namespace

Session::Session(const Sync::Parts& parts, Node& node)
    : parts_(parts),
      node_(node),
      sync_(parts, *this),
      timer_(parts.client.loop().make_timer([this] { tick(); }))
{
    timer_->start(milliseconds{ 1 });
}

Session::~Session()
{
    parts_.memory.stop_leading();
}

milliseconds Session::now() const noexcept
{
    return std::chrono::duration_cast<milliseconds>(parts_.clock.monotonic());
}

void Session::tick() noexcept
{
    if (!node_.stays()) {
        parts_.memory.stop_leading();
        return;
    }
    const milliseconds time = now();
    FleetMemory::Shared& shared = parts_.memory.shared();
    const auto heard =
        std::chrono::duration_cast<milliseconds>(microseconds{ shared.heard_us.load() });
    if (leads_ && sync_.running() && time - heard >= longest_answer) {
        give_up();
        return;
    }
    leads_ = parts_.memory.follows(parts_.storage) && parts_.memory.lead(time, lease);
    if (!leads_) {
        parts_.memory.stop_leading();  // a later configuration has another Redis
        timer_->start(between_looks);
        return;
    }
    // A worker that was just started, or that was stopped (SIGSTOP), has not asked Redis yet.
    if (asked_ == milliseconds{ 0 } || heard != asked_after_) {
        asked_ = time;
        asked_after_ = heard;
    }
    if (time - heard > silence && time - asked_ > asked_in_vain
        && shared.connected.exchange(false)) {
        node_.disconnected();
    }
    called_ = time;
    timer_->start(longest_answer);
    sync();
}

/// Lets another worker try; its connection may be better.
void Session::give_up() noexcept
{
    leads_ = false;
    parts_.memory.stop_leading();
    timer_->start(after_failure);
}

void Session::sync() noexcept
try {
    if (!sync_.start(node_.state()) && leads_) {
        give_up();
    }
} catch (const std::exception&) {
    return;  // out of memory: the next tick tries again
}

void Session::hurry() noexcept
{
    if (sync_.running()) {
        again_ = true;
    } else {
        sync();
    }
}

void Session::synced(Sync::End end) noexcept
{
    FleetMemory::Shared& shared = parts_.memory.shared();
    if (end == Sync::End::known && !shared.connected.exchange(true)) {
        node_.connected();
    }
    if (const auto count = shared.left_out.load();
        count > 0 && !shared.left_out_logged.exchange(true)) {
        node_.left_out(count);
    }
    if (std::exchange(again_, false)) {
        sync();
    } else if (leads_ && end == Sync::End::failed) {
        give_up();
    } else if (leads_) {
        const milliseconds next =
            end == Sync::End::part ? until_next_part : called_ + between_calls - now();
        timer_->start(std::max(next, milliseconds{ 1 }));
    }
}

}  // namespace ratelimit::fleet

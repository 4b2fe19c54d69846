#include "store/zone_slots.h"

namespace ratelimit {

/// The zone's slot, or the unused one where it would be added. Null: there is neither.
ZoneSlots::Slot* ZoneSlots::slot_of(std::uint64_t zone) noexcept
{
    for (std::size_t i = 0; i < most; ++i) {
        Slot& slot = slots_[(zone + i) % most];
        const std::uint64_t owner = slot.zone.load(std::memory_order_acquire);
        if (owner == zone || owner == 0) {
            return &slot;
        }
    }
    return nullptr;
}

ZoneSlots::Slot* ZoneSlots::add(std::uint64_t zone) noexcept
{
    Slot* slot = slot_of(zone);
    if (slot != nullptr && slot->zone.load(std::memory_order_relaxed) == 0) {
        slot->keys.store(1, std::memory_order_relaxed);
        slot->whole.store(Slot::uncounted, std::memory_order_relaxed);
        slot->zone.store(zone, std::memory_order_release);
        added_.store(true);
    }
    return slot;
}

void ZoneSlots::count(std::uint64_t zone, bool whole, bool more) noexcept
{
    Slot* slot = slot_of(zone);
    if (slot != nullptr && slot->zone.load(std::memory_order_relaxed) == zone
        && slot->whole.load(std::memory_order_relaxed) != Slot::uncounted) {
        (whole ? slot->whole : slot->keys)
            .fetch_add(more ? 1 : UINT32_MAX, std::memory_order_relaxed);
    }
}

void ZoneSlots::set(const std::array<Counts, most>& counts) noexcept
{
    for (std::size_t i = 0; i < most; ++i) {
        if (slots_[i].zone.load(std::memory_order_relaxed) != 0) {
            slots_[i].keys.store(counts[i].keys, std::memory_order_relaxed);
            slots_[i].whole.store(counts[i].whole, std::memory_order_relaxed);
        }
    }
}

}  // namespace ratelimit

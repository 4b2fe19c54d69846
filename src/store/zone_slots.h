#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ratelimit {

/// How many overrides each configured zone has, in shared memory. Overrides of other zones are not
/// counted: the names of zones come from Redis, and there could be any number of them.
///
/// Only the master process adds slots, and none is removed as long as the memory lasts: zones of
/// this and earlier configurations refer to theirs. Writers hold a lock of their owner's.
class ZoneSlots {
public:
    static constexpr std::size_t most = 1024;

    struct Slot {
        /// As `whole`: the slot was just added, and the zone may have overrides.
        static constexpr std::uint32_t uncounted = 1U << 31U;

        std::atomic<std::uint64_t> zone;   // OverrideTable::zone_hash; 0: unused
        std::atomic<std::uint32_t> keys;   // how many keys have one
        std::atomic<std::uint32_t> whole;  // 1: there is one for the whole zone

        std::uint64_t count() const noexcept
        {
            const auto of_zone = whole.load(std::memory_order_relaxed);
            return of_zone == uncounted
                ? 0
                : std::uint64_t{ keys.load(std::memory_order_relaxed) } + of_zone;
        }
        bool any() const noexcept
        {
            return keys.load(std::memory_order_relaxed) != 0
                || whole.load(std::memory_order_relaxed) != 0;
        }
    };

    /// The slot of a zone, which is added if need be. Null: there are too many zones.
    Slot* add(std::uint64_t zone) noexcept;

    // For writers.

    /// Whether slots were added since the last count of all.
    bool any_uncounted() const noexcept { return added_.load(); }
    /// One override more, or one less: of a key, or of the whole zone.
    void count(std::uint64_t zone, bool whole, bool more) noexcept;
    /// Counts all again: `each` calls its argument with the zone of each override and whether it is
    /// of the whole zone. No reader sees a zone without overrides meanwhile.
    template <class Each>
    void count_all(Each&& each) noexcept
    {
        added_.store(false);
        std::array<Counts, most> counts{};
        each([&](std::uint64_t zone, bool whole) {
            const Slot* slot = slot_of(zone);
            if (slot != nullptr && slot->zone.load(std::memory_order_relaxed) == zone) {
                Counts& found = counts[static_cast<std::size_t>(slot - slots_.data())];
                ++(whole ? found.whole : found.keys);
            }
        });
        set(counts);
    }

private:
    struct Counts {
        std::uint32_t keys;
        std::uint32_t whole;
    };

    Slot* slot_of(std::uint64_t zone) noexcept;
    void set(const std::array<Counts, most>& counts) noexcept;

    std::atomic<bool> added_;
    std::array<Slot, most> slots_;
};

}  // namespace ratelimit

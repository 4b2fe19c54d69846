#include "store/held_units.h"

#include <cerrno>
#include <csignal>

namespace ratelimit {

/// Of consecutive process slots. Two living processes of one master never share a slot.
struct HeldUnitsCount::Slots {
    struct Slot {
        ngx_pid_t process;
        std::int64_t units;
    };
    std::array<Slot, group_size> all;
};

void HeldUnitsCount::set(std::int64_t units) const noexcept
{
    const auto slot = static_cast<std::size_t>(ngx_process_slot);
    const std::size_t group = slot / group_size;
    if (group >= shared_->groups.size()) {
        return;  // nginx has no such slot
    }
    const ZoneLock lock(pool_);

    Slots*& slots = shared_->groups[group];
    if (slots == nullptr) {
        slots = static_cast<Slots*>(ngx_slab_calloc_locked(pool_, sizeof(Slots)));
    }
    if (slots != nullptr) {
        slots->all[slot % group_size] = { ngx_pid, units };
    }
}

std::uint64_t HeldUnitsCount::sum() const noexcept
{
    const ZoneLock lock(pool_);

    std::uint64_t total = 0;
    for (const Slots* slots : shared_->groups) {
        if (slots == nullptr) {
            continue;
        }
        for (const Slots::Slot& slot : slots->all) {
            if (slot.units > 0 && (kill(slot.process, 0) == 0 || errno != ESRCH)) {
                total += static_cast<std::uint64_t>(slot.units);
            }
        }
    }
    return total;
}

}  // namespace ratelimit

#include "store/held_units.h"

#include <array>
#include <cerrno>
#include <csignal>

namespace ratelimit {

/// By ngx_process_slot, which two processes of one master never share.
struct HeldUnitsCount::Slots {
    struct Slot {
        ngx_pid_t process;
        std::int64_t units;
    };
    std::array<Slot, 64> all;
};

void HeldUnitsCount::set(std::int64_t units) const noexcept
{
    const ZoneLock lock(pool_);

    Slots*& slots = shared_->slots;
    if (slots == nullptr) {
        slots = static_cast<Slots*>(ngx_slab_calloc_locked(pool_, sizeof(Slots)));
    }
    if (slots != nullptr) {
        slots->all[static_cast<std::size_t>(ngx_process_slot) % slots->all.size()] = { ngx_pid,
                                                                                       units };
    }
}

std::uint64_t HeldUnitsCount::sum() const noexcept
{
    const ZoneLock lock(pool_);

    std::uint64_t total = 0;
    if (shared_->slots != nullptr) {
        for (const Slots::Slot& slot : shared_->slots->all) {
            if (slot.units > 0 && (kill(slot.process, 0) == 0 || errno != ESRCH)) {
                total += static_cast<std::uint64_t>(slot.units);
            }
        }
    }
    return total;
}

}  // namespace ratelimit

#include "check/sequence_scripts.h"

#include "redis/script_registry.h"

#include <bit>

namespace ratelimit {

SequenceScripts::SequenceScripts(
    std::span<const SequenceLimit> limits, redis::ScriptRegistry& scripts)
    : all_bits_(bit(limits.size()) - 1), all_(scripts.add(sequence_script(limits)))
{
    for (std::size_t i = 0; i < limits.size(); ++i) {
        SequenceLimit limit = limits[i];
        limit.shadow = false;  // no other limit is refused by it
        alone_[i] = scripts.add(sequence_script({ &limit, 1 }));
    }
}

std::optional<redis::ScriptId> SequenceScripts::of(std::size_t limits) const noexcept
{
    if (std::has_single_bit(limits)) {
        return alone_[static_cast<std::size_t>(std::countr_zero(limits))];
    }
    return limits == all_bits_ ? std::optional{ all_ } : std::nullopt;
}

}  // namespace ratelimit

#include "check/remote_limit.h"

namespace ratelimit {

std::optional<redis::ScriptId> sequence_of(std::span<RemoteLimit* const> limits) noexcept
{
    SequenceScripts* scripts = limits.front()->scripts.sequences;
    std::size_t bits = 0;
    for (const RemoteLimit* limit : limits) {
        if (limit->scripts.sequences != scripts || limit->block_apart) {
            return std::nullopt;
        }
        bits |= limit->scripts.bit;
    }
    return scripts == nullptr ? std::nullopt : scripts->of(bits);
}

}  // namespace ratelimit

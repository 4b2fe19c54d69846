#pragma once

#include "check/script_text.h"
#include "redis/command.h"

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace ratelimit::redis {
class ScriptRegistry;
}

namespace ratelimit {

/// The scripts for limits of one location in one Redis: one for all of them, and one for each
/// alone. An empty key, a lease or a remembered refusal can leave limits out. Several_script
/// decides what is left then: it costs Redis about as much as the script of all of them.
class SequenceScripts {
public:
    /// Limits, at most: these fit in the local variables that Lua allows.
    static constexpr std::size_t most = 6;

    SequenceScripts(std::span<const SequenceLimit> limits, redis::ScriptRegistry& scripts);

    /// The script of exactly these limits, if there is one. `limits`: the sum of bit(index) of
    /// each.
    std::optional<redis::ScriptId> of(std::size_t limits) const noexcept;
    static constexpr std::size_t bit(std::size_t index) noexcept
    {
        return std::size_t{ 1 } << index;
    }

private:
    const std::size_t all_bits_;
    redis::ScriptId all_;
    std::array<redis::ScriptId, most> alone_{};
};

}  // namespace ratelimit

#pragma once

#include "check/script_text.h"
#include "redis/command.h"

#include <array>
#include <cstddef>
#include <span>

namespace ratelimit::redis {
class ScriptRegistry;
}

namespace ratelimit {

/// The scripts for limits of one location in one Redis. A request needs some of these limits: an
/// empty key, a lease or a remembered refusal leaves a limit out. Each choice of them, in their
/// order, is a sequence with a script of its own.
class SequenceScripts {
public:
    /// Limits, at most. Each further one doubles the number of scripts.
    static constexpr std::size_t most = 4;

    /// Refundable: a limit on another server may refuse what these limits counted.
    SequenceScripts(
        std::span<const SequenceLimit> limits, bool refundable, redis::ScriptRegistry& scripts);

    bool refundable() const noexcept { return refundable_; }

    /// `limits`: the sum of bit(index) of some limits, at least one.
    redis::ScriptId of(std::size_t limits) const noexcept { return scripts_[limits]; }
    static constexpr std::size_t bit(std::size_t index) noexcept
    {
        return std::size_t{ 1 } << index;
    }

private:
    const bool refundable_;
    std::array<redis::ScriptId, std::size_t{ 1 } << most> scripts_{};
};

}  // namespace ratelimit

#pragma once

#include "check/script_text.h"
#include "redis/call.h"

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

namespace ratelimit::redis {
class ScriptRegistry;
}

namespace ratelimit {

/// The scripts for limits of one location in one Redis: one for each choice of them that requests
/// have. An empty key, a lease or a remembered refusal can leave limits out. A script is made when
/// it is first used.
///
/// Which limits are left out depends on clients, so their choices have a bound: choices of a
/// location, and their scripts in a Redis (ScriptRegistry::most_chosen). Several_script decides the
/// others. All limits together and each alone always have a script.
class SequenceScripts {
public:
    /// Limits, at most.
    static constexpr std::size_t most = 16;
    static constexpr std::size_t most_choices = 64;

    /// `scripts` must outlive this object.
    SequenceScripts(std::span<const SequenceLimit> limits, redis::ScriptRegistry& scripts);

    struct Sequence {
        redis::ScriptId script{};
        redis::BatchFormat format;
    };

    /// The script of exactly these limits. `limits`: the sum of bit(index) of each. Null: there is
    /// none.
    const Sequence* of(std::size_t limits) noexcept
    {
        return limits == last_ ? last_sequence_ : find(limits);
    }
    static constexpr std::size_t bit(std::size_t index) noexcept
    {
        return std::size_t{ 1 } << index;
    }

private:
    const Sequence* find(std::size_t limits) noexcept;
    const Sequence* make(std::size_t limits) noexcept;

    std::vector<SequenceLimit> limits_;
    redis::ScriptRegistry& scripts_;
    std::unordered_map<std::size_t, Sequence> made_;
    std::size_t last_ = 0;  // the latest choice that has a script, and that; 0: none
    const Sequence* last_sequence_ = nullptr;
};

}  // namespace ratelimit

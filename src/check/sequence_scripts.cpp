#include "check/sequence_scripts.h"

#include "redis/script_registry.h"

#include <bit>
#include <exception>

namespace ratelimit {

SequenceScripts::SequenceScripts(
    std::span<const SequenceLimit> limits, redis::ScriptRegistry& scripts)
    : limits_(limits.begin(), limits.end()), scripts_(scripts)
{
}

const SequenceScripts::Sequence* SequenceScripts::find(std::size_t limits) noexcept
{
    const auto made = made_.find(limits);
    const Sequence* const found = made != made_.end() ? &made->second : make(limits);
    if (found != nullptr) {
        last_ = limits;
        last_sequence_ = found;
    }
    return found;
}

const SequenceScripts::Sequence* SequenceScripts::make(std::size_t limits) noexcept
try {
    const bool alone = std::has_single_bit(limits);
    const bool chosen = !alone && limits != bit(limits_.size()) - 1;
    if (chosen && (made_.size() >= most_choices || scripts_.full())) {
        return nullptr;
    }
    std::vector<SequenceLimit> sequence;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        if ((limits & bit(i)) != 0) {
            sequence.push_back(limits_[i]);
        }
    }
    if (alone) {
        sequence.front().shadow = false;  // no other limit is refused by it
    }
    const redis::ScriptId script = scripts_.add(
        sequence_script(sequence), chosen ? redis::Added::chosen : redis::Added::configured);
    return &made_.emplace(limits, Sequence{ script, sequence_format(sequence) }).first->second;
} catch (const std::exception&) {
    return nullptr;  // out of memory
}

}  // namespace ratelimit

#include "check/sequence_scripts.h"

#include "redis/script_registry.h"

#include <vector>

namespace ratelimit {

SequenceScripts::SequenceScripts(
    std::span<const SequenceLimit> limits, bool refundable, redis::ScriptRegistry& scripts)
    : refundable_(refundable)
{
    for (std::size_t choice = 1; choice < bit(limits.size()); ++choice) {
        std::vector<SequenceLimit> sequence;
        for (std::size_t i = 0; i < limits.size(); ++i) {
            if ((choice & bit(i)) != 0) {
                sequence.push_back(limits[i]);
            }
        }
        if (sequence.size() == 1) {
            sequence.front().shadow = false;  // no other limit is refused by it
        }
        scripts_[choice] = scripts.add(sequence_script(sequence, refundable));
    }
}

}  // namespace ratelimit

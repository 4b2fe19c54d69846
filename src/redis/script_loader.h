#pragma once

#include "redis/call_queue.h"
#include "redis/script_registry.h"

#include <functional>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

/// Loads scripts over one connection: a script when Redis answers NOSCRIPT to a call, once for all
/// calls that were on their way then. Redis executes the commands of a connection in their order,
/// so calls that are sent again behind the SCRIPT LOAD find the script.
class ScriptLoader {
public:
    /// Writes a SCRIPT LOAD. False: it could not be written.
    using Write = std::function<bool(std::string_view command)>;

    /// `scripts` must outlive this object.
    ScriptLoader(const ScriptRegistry& scripts, Write write)
        : scripts_(scripts), write_(std::move(write))
    {
    }

    /// There is a new connection.
    void reset() noexcept { loaded_.clear(); }
    /// Calls of this script, or of none, are written now.
    void written(const CallQueue& calls, std::optional<ScriptId> script) const noexcept;
    /// Call for a call with the answer NOSCRIPT: loads the script, unless it was loaded since the
    /// call was written. False: the call calls no script, or must not be sent again.
    bool load_for(PendingCall& record) noexcept;

private:
    /// Of one call: SCRIPT FLUSH may come between each load and the call.
    static constexpr unsigned most_misses = 16;

    const ScriptRegistry& scripts_;
    Write write_;
    unsigned loads_ = 0;            // so far
    std::vector<unsigned> loaded_;  // by ScriptId: loads_ after its latest load; 0: not loaded
};

}  // namespace ratelimit::redis

#pragma once

#include "redis/command.h"

#include <string>
#include <vector>

namespace ratelimit::redis {

/// The scripts that a client may call. They must be added before it connects: each connection loads
/// all of them with SCRIPT LOAD before its first call. (Redis 7.4 and later evict scripts that were
/// loaded by EVAL.)
class ScriptRegistry {
public:
    /// Adding a text again returns the same id.
    ScriptId add(std::string text);
    const std::string& text(ScriptId id) const noexcept;
    std::size_t size() const noexcept { return texts_.size(); }

private:
    std::vector<std::string> texts_;
};

}  // namespace ratelimit::redis

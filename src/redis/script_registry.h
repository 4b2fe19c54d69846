#pragma once

#include "redis/command.h"

#include <string>
#include <vector>

namespace ratelimit::redis {

/// The scripts a client may call, known before it connects: each connection loads them all, with
/// SCRIPT LOAD, before its first call. (Redis 7.4 and later evict scripts that came by EVAL.)
class ScriptRegistry {
public:
    /// The same text has the same id.
    ScriptId add(std::string text);
    const std::string& text(ScriptId id) const noexcept;
    std::size_t size() const noexcept { return texts_.size(); }

private:
    std::vector<std::string> texts_;
};

}  // namespace ratelimit::redis

#pragma once

#include "redis/command.h"

#include <string>
#include <vector>

namespace ratelimit::redis {

/// The scripts that a client may call. They must be added before it connects. A connection loads a
/// script with SCRIPT LOAD when the server does not have it (ScriptLoader). (Redis 7.4 and later
/// evict scripts that were loaded by EVAL.)
class ScriptRegistry {
public:
    /// Adding a text again returns the same id.
    ScriptId add(std::string text);
    const std::string& text(ScriptId id) const noexcept;
    /// By ScriptId.
    const std::vector<ScriptDigest>& digests() const noexcept { return digests_; }
    std::size_t size() const noexcept { return texts_.size(); }

private:
    std::vector<std::string> texts_;
    std::vector<ScriptDigest> digests_;
};

}  // namespace ratelimit::redis

#include "redis/script_registry.h"

#include <algorithm>
#include <utility>

namespace ratelimit::redis {

ScriptId ScriptRegistry::add(std::string text)
{
    const auto found = std::find(texts_.begin(), texts_.end(), text);
    if (found != texts_.end()) {
        return static_cast<ScriptId>(found - texts_.begin());
    }
    texts_.push_back(std::move(text));
    return static_cast<ScriptId>(texts_.size() - 1);
}

const std::string& ScriptRegistry::text(ScriptId id) const noexcept
{
    return texts_[static_cast<std::size_t>(id)];
}

}  // namespace ratelimit::redis

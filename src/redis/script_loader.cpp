#include "redis/script_loader.h"

namespace ratelimit::redis {

void ScriptLoader::written(const CallQueue& calls, std::optional<ScriptId> script) const noexcept
{
    for (PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        record->script = script;
        record->loads = loads_;
    }
}

bool ScriptLoader::load_for(PendingCall& record) noexcept
try {
    if (!record.script || record.missed_scripts++ == most_misses) {
        return false;
    }
    loaded_.resize(scripts_.size());
    unsigned& loaded = loaded_[static_cast<std::size_t>(*record.script)];
    if (loaded > record.loads) {
        return true;
    }
    const bool sent = write_(plain_command({ "SCRIPT", "LOAD", scripts_.text(*record.script) }));
    loaded = sent ? ++loads_ : loaded;
    return sent;
} catch (const std::exception&) {
    return false;
}

}  // namespace ratelimit::redis

#pragma once

#include "redis/command.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ratelimit::redis {

/// Why a script is added.
enum class Added : std::uint8_t {
    configured,
    goes_first,  // the same; its calls are written before others of the same turn of the loop
    chosen,      // by what clients send
};

/// The scripts that a client may call. A command names its script by the digest (EVALSHA). If the
/// server does not have it (NOSCRIPT), the calls are sent again, and the next command of the script
/// has the text (EVAL), which goes to the server of its keys through any proxy, and loads the
/// script. Redis 7.4 and later keep the 500 such scripts that were used last.
class ScriptRegistry {
public:
    /// Scripts that are chosen by clients, at most.
    static constexpr std::size_t most_chosen = 64;

    /// Adding a text again returns the same id.
    ScriptId add(std::string text, Added why = Added::configured);
    /// Whether clients have chosen as many as they may.
    bool full() const noexcept { return chosen_ >= most_chosen; }
    struct Registered {
        std::string text;
        ScriptDigest digest;
        bool goes_first;
    };
    /// Throws if it does not have the script.
    const Registered& at(ScriptId id) const { return scripts_.at(static_cast<std::size_t>(id)); }
    std::size_t size() const noexcept { return scripts_.size(); }

private:
    std::vector<Registered> scripts_;  // by ScriptId
    std::size_t chosen_ = 0;
};

/// ScriptArguments with the scripts of a client, for one connection: it notes which of them the
/// server lacks.
class CommandBuffer final : public ScriptArguments {
public:
    /// `scripts` must outlive this object.
    explicit CommandBuffer(const ScriptRegistry& scripts) noexcept : scripts_(scripts) {}

    /// The next command of this script has its text: the server lacks it. False: it is none, or
    /// there is no memory.
    bool use_text_of(ScriptId script) noexcept;
    /// Throws if the registry does not have the script: nothing is written then.
    void begin_script(ScriptId script, ArgumentCount count)
    {
        const auto& [text, digest, first] = scripts_.at(script);
        const auto index = static_cast<std::size_t>(script);
        const bool by_text = index < lacking_.size() && lacking_[index];
        if (by_text) {
            lacking_[index] = false;
            begin(Script::text, text, count);
        } else {
            by_digest_ = script;
            begin(Script::digest, { digest.data(), digest.size() }, count);
        }
    }
    /// The script that the last command names by its digest, if it does. Can be taken once.
    ScriptId take_by_digest() noexcept { return std::exchange(by_digest_, ScriptId::none); }

private:
    const ScriptRegistry& scripts_;
    std::vector<bool> lacking_;  // by ScriptId
    ScriptId by_digest_ = ScriptId::none;
};

}  // namespace ratelimit::redis

#pragma once

#include "redis/command.h"

#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

/// Why a script is added.
enum class Added : std::uint8_t {
    configured,
    goes_first,  // the same; its calls are written before others of the same turn of the loop
    chosen,      // by what clients send
};

/// The scripts that a client may call. A call names its
/// script by the digest (EVALSHA). If the server does not have it (NOSCRIPT), the call is sent
/// again with the text (EVAL), which goes to the server of its keys through any proxy, and loads
/// the script. Redis 7.4 and later keep the 500 such scripts that were used last.
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

/// ScriptArguments with the scripts of a client.
class CommandBuffer final : public ScriptArguments {
public:
    /// `scripts` must outlive this object.
    explicit CommandBuffer(const ScriptRegistry& scripts) noexcept : scripts_(scripts) {}

    /// Sets how the next commands name their scripts.
    void name_by(Script choice) noexcept { named_by_ = choice; }
    /// Throws if the registry does not have the script: nothing is written then.
    void begin_script(ScriptId script, ArgumentCount count)
    {
        const auto& [text, digest, first] = scripts_.at(script);
        begin(
            named_by_,
            named_by_ == Script::text ? std::string_view(text)
                                      : std::string_view{ digest.data(), digest.size() },
            count);
    }

private:
    const ScriptRegistry& scripts_;
    Script named_by_ = Script::digest;
};

}  // namespace ratelimit::redis

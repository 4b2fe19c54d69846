#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

/// Any command, as RESP.
std::string plain_command(std::initializer_list<std::string_view> words);

/// AUTH; an empty username is the default user.
std::string auth_command(std::string_view username, std::string_view password);

/// Index of a script in the client's ScriptRegistry.
enum class ScriptId : std::uint16_t {};

/// The SHA-1 digest by which EVALSHA names a script, in hexadecimal digits.
using ScriptDigest = std::array<char, 40>;

struct ArgumentCount {
    std::size_t keys = 0;
    std::size_t args = 0;
};

/// Writes one EVALSHA as RESP into a buffer that is reused: begin, then each key, then each arg, as
/// many as `count` says. Binary-safe.
class ScriptArguments {
public:
    /// `sha`: 40 hexadecimal digits.
    void begin(std::string_view sha, ArgumentCount count);
    void key(std::string_view name) { bulk(name); }
    void arg(std::string_view text) { bulk(text); }
    void arg(std::int64_t number);
    /// One arg of this number of numbers, in any number of calls of packed(). Each is written as a
    /// little-endian double, which a script unpacks with '<d'. It is exact up to 2^53.
    void begin_packed(std::size_t numbers);
    void packed(std::span<const std::int64_t> numbers);
    void end_packed();

    std::string_view text() const noexcept { return { buffer_.data(), used_ }; }

private:
    char* room(std::size_t bytes);
    void bulk(std::string_view text);
    void used_up_to(const char* end) noexcept
    {
        used_ = static_cast<std::size_t>(end - buffer_.data());
    }

protected:
    /// Replaces all by another command, in RESP.
    void replace(std::string_view command);

private:
    std::string buffer_;  // only its first used_ bytes are written
    std::size_t used_ = 0;
};

/// ScriptArguments with the digests of a server's scripts.
class CommandBuffer final : public ScriptArguments {
public:
    /// `digests`: by ScriptId. They must outlive this object.
    explicit CommandBuffer(const std::vector<ScriptDigest>& digests) noexcept : digests_(digests) {}

    void begin_script(ScriptId script, ArgumentCount count)
    {
        const ScriptDigest& digest = digests_[static_cast<std::size_t>(script)];
        begin({ digest.data(), digest.size() }, count);
        script_ = script;
    }
    /// Replaces all by a command that calls no script, in RESP.
    void whole(std::string_view command)
    {
        replace(command);
        script_.reset();
    }
    /// The script that the command calls. Empty: it calls none.
    std::optional<ScriptId> script() const noexcept { return script_; }

private:
    const std::vector<ScriptDigest>& digests_;
    std::optional<ScriptId> script_;
};

}  // namespace ratelimit::redis

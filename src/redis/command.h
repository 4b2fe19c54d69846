#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace ratelimit::redis {

/// Any command, as RESP.
std::string plain_command(std::initializer_list<std::string_view> words);

/// A script that returns TIME: a server that can execute scripts answers it, also through a proxy
/// that passes no command without a key. `key`: decides the server; empty: none does.
std::string time_command(std::string_view key);

/// AUTH; an empty username is the default user.
std::string auth_command(std::string_view username, std::string_view password);

/// Index of a script in the client's ScriptRegistry.
enum class ScriptId : std::uint16_t { none = 0xffff };

/// The SHA-1 digest by which EVALSHA names a script, in hexadecimal digits.
using ScriptDigest = std::array<char, 40>;

struct ArgumentCount {
    std::size_t keys = 0;
    std::size_t args = 0;
};

/// What names a script in a command: EVALSHA its digest, EVAL its text.
enum class Script : std::uint8_t { digest, text };

/// Writes one EVALSHA or EVAL as RESP into a buffer that is reused: begin, then each key, then each
/// arg, as many as `count` says. Binary-safe.
class ScriptArguments {
public:
    /// `named`: the digest, in 40 hexadecimal digits, or the text.
    void begin(Script script, std::string_view named, ArgumentCount count);
    void key(std::string_view name) { bulk(name); }
    void arg(std::string_view text) { bulk(text); }
    void arg(std::int64_t number);
    /// One arg of numbers, in any number of calls of packed(). Each is written as a little-endian
    /// double, which a script unpacks with '<d'. It is exact up to 2^53.
    void begin_packed();
    void packed(std::span<const std::int64_t> numbers);
    /// `once`: if all parts of this number of numbers are equal, only one is written. 0: all.
    void end_packed(std::size_t once = 0);
    /// Replaces all by a command that calls no script, in RESP.
    void whole(std::string_view command);

    std::string_view text() const noexcept { return { buffer_.data(), used_ }; }

private:
    /// Makes room for `bytes` bytes after what is written. Returns their start.
    char* room(std::size_t bytes)
    {
        if (buffer_.size() - used_ < bytes) {
            buffer_.resize(2 * (used_ + bytes));
        }
        return buffer_.data() + used_;
    }
    void bulk(std::string_view text);
    void used_up_to(const char* end) noexcept
    {
        used_ = static_cast<std::size_t>(end - buffer_.data());
    }

    std::string buffer_;  // only its first used_ bytes are written
    std::size_t used_ = 0;
    std::size_t packed_at_ = 0;  // where the room for the length of packed numbers begins
};

}  // namespace ratelimit::redis

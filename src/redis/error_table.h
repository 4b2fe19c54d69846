#pragma once

#include "redis/call.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace ratelimit::redis {

/// The error of a command, also if a script called it. Redis before 7.0 wraps the error then, as
/// "ERR Error running script (...): ...: -READONLY You can't write against a read only replica."
inline std::string_view error_text(std::string_view reply) noexcept
{
    constexpr std::string_view mark = ": -";
    const auto found = reply.find(mark);
    const bool wrapped = reply.starts_with("ERR Error running script")
        && found != std::string_view::npos && found + mark.size() < reply.size();
    const auto inner = wrapped ? reply.substr(found + mark.size()) : reply;
    return !inner.empty() && inner.front() >= 'A' && inner.front() <= 'Z' ? inner : reply;
}

/// What a call does next that got an error.
enum class Next : std::uint8_t {
    fail,
    follow,      // it is sent to the server that the error names
    wait,        // until another server has its keys
    one_by_one,  // it fails, and calls with one key each are sent
};

/// What an error says of the call that got it.
struct ErrorRule {
    std::string_view word = {};  // the first of the error
    std::string_view text = {};  // a text that it also has
    bool executed = false;       // Redis may have executed a part of the script
    bool leaves = false;   // the server cannot execute scripts now, or is no longer the right one
    bool reads = false;    // but it answers calls that only read, so it is up
    bool by_keys = false;  // of calls that share a command, each may be executed alone
    bool loads = false;    // a call by the digest of its script is sent again, with the text
    Next cluster = Next::fail;  // the next step otherwise; on a ring it fails
    Next sentinel = Next::fail;

    constexpr Fate fate() const noexcept { return executed ? Fate::failed : Fate::refused; }
};

/// The errors that mean something for a call: of Redis 6.2 to 8 and Valkey. The first row counts
/// that fits. Redis refuses writes only before a script's first one (with
/// cluster-allow-reads-when-down by ERR), and keys before it executes anything.
inline constexpr std::array error_rules = {
    ErrorRule{ .word = "READONLY", .leaves = true, .reads = true, .sentinel = Next::wait },
    ErrorRule{ .word = "MASTERDOWN", .leaves = true, .sentinel = Next::wait },
    ErrorRule{ .word = "LOADING", .leaves = true },
    ErrorRule{ .word = "NOAUTH", .leaves = true },
    ErrorRule{ .word = "OOM" },
    ErrorRule{ .word = "BUSY" },
    ErrorRule{ .word = "MISCONF" },
    ErrorRule{ .word = "NOREPLICAS" },
    ErrorRule{ .word = "NOSCRIPT", .loads = true },
    ErrorRule{ .word = "MOVED", .cluster = Next::follow },
    ErrorRule{ .word = "ASK", .cluster = Next::follow },
    ErrorRule{ .word = "CLUSTERDOWN", .cluster = Next::wait },
    ErrorRule{ .word = "ERR", .text = "while the cluster is down", .cluster = Next::wait },
    ErrorRule{ .word = "TRYAGAIN", .by_keys = true, .cluster = Next::one_by_one },
    ErrorRule{ .word = "CROSSSLOT", .by_keys = true },
    ErrorRule{ .word = "NOPERM", .text = "in script", .executed = true },
    ErrorRule{ .word = "NOPERM", .text = "'eval" },
    ErrorRule{ .word = "NOPERM", .text = " key", .by_keys = true },
    ErrorRule{ .executed = true },  // every other error
};

/// `error`: as error_text returns it.
constexpr const ErrorRule& rule_of(std::string_view error) noexcept
{
    const std::string_view word = error.substr(0, error.find(' '));
    for (const ErrorRule& rule : error_rules) {
        const bool has_text = error.find(rule.text) != std::string_view::npos;
        if ((rule.word == word && has_text) || rule.word.empty()) {
            return rule;
        }
    }
    return error_rules.back();
}

/// Whether a server refused a connection for its password, also one that had a good one before.
inline bool refuses_password(std::string_view error) noexcept
{
    constexpr std::array<std::string_view, 4> all = { "WRONGPASS", "NOAUTH", "ERR invalid password",
                                                      "ERR AUTH failed" };
    return std::ranges::any_of(all, [error](auto words) { return error.starts_with(words); });
}

/// Whether Redis refused a command, or one of a script, for a right that its user lacks. Redis 7.0
/// and 7.2 word the latter differently.
inline bool lacks_right(std::string_view error) noexcept
{
    constexpr std::array<std::string_view, 3> all = { "NOPERM", "can't run this command",
                                                      "ACL failure in script" };
    return std::ranges::any_of(
        all, [error](auto words) { return error.find(words) != std::string_view::npos; });
}

}  // namespace ratelimit::redis

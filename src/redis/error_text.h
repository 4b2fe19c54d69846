#pragma once

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

/// Whether the error means that the server cannot execute scripts now, or is no longer the right
/// one.
inline bool leaves_server(std::string_view error) noexcept
{
    for (const std::string_view word : { "READONLY", "LOADING", "MASTERDOWN", "NOAUTH" }) {
        if (error.starts_with(word)) {
            return true;
        }
    }
    return false;
}

/// Whether Redis has executed nothing of a script that got this error. (It refuses writes only
/// before a script's first one.)
inline bool executed_nothing(std::string_view error) noexcept
{
    for (const std::string_view word :
         { "OOM", "BUSY", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MISCONF",
           "NOREPLICAS", "NOAUTH", "NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CROSSSLOT" }) {
        if (error.starts_with(word)) {
            return true;
        }
    }
    const auto has = [error](std::string_view words) { return error.find(words) != error.npos; };
    // Not if a command of the script lacks a right.
    return error.starts_with("NOPERM") && !has("in script") && (has("evalsha") || has(" key"));
}

/// Whether Redis refused a command, or one of a script, for a right that its user lacks. Redis 7.0
/// and 7.2 word the latter differently.
inline bool lacks_right(std::string_view error) noexcept
{
    for (const std::string_view words :
         { "NOPERM", "can't run this command", "ACL failure in script" }) {
        if (error.find(words) != std::string_view::npos) {
            return true;
        }
    }
    return false;
}

/// Errors of a command whose keys are not all on this server, not in one slot, or not all allowed
/// to this user. Redis finds them before it executes anything.
inline bool refuses_shared_keys(std::string_view error) noexcept
{
    const bool forbidden_key =
        error.starts_with("NOPERM") && error.find(" key") != std::string_view::npos;
    return forbidden_key || error.starts_with("CROSSSLOT") || error.starts_with("TRYAGAIN");
}

}  // namespace ratelimit::redis

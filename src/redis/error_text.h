#pragma once

#include <string_view>

namespace ratelimit::redis {

/// The error that a script met, as it is where no script is: Redis before 7.0 wraps it, as
/// "ERR Error running script (...): ...: -READONLY You can't write against a read only replica."
inline std::string_view error_text(std::string_view reply) noexcept
{
    constexpr std::string_view mark = ": -";
    const auto found = reply.find(mark);
    const bool wrapped = reply.starts_with("ERR Error running script")
        && found != std::string_view::npos && found + mark.size() < reply.size();
    const auto inner = wrapped ? reply.substr(found + mark.size()) : reply;
    return inner.front() >= 'A' && inner.front() <= 'Z' ? inner : reply;
}

/// Errors of a server that is of no use now, and maybe no more the right one.
inline bool leaves_server(std::string_view error) noexcept
{
    for (const std::string_view word : { "READONLY", "LOADING", "MASTERDOWN", "NOAUTH" }) {
        if (error.starts_with(word)) {
            return true;
        }
    }
    return false;
}

}  // namespace ratelimit::redis

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit {

/// What must remain of a limit after a request: a number of requests, or a share of the limit.
struct Reserve {
    std::int64_t number = 0;  // requests, or percent
    bool share = false;

    /// In requests, of a limit of this size. A share is rounded up.
    std::int64_t of(std::int64_t limit) const noexcept
    {
        constexpr std::int64_t percent = 100;
        return share ? (limit * number + percent - 1) / percent : number;
    }

    /// As parse_reserve reads it.
    std::string text() const { return std::to_string(number) + (share ? "%" : ""); }
};

/// "20%": a share from 0% to 100%; "50": a number from 0 to max_quota. Empty: neither.
std::optional<Reserve> parse_reserve(std::string_view text) noexcept;

}  // namespace ratelimit

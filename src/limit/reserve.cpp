#include "limit/reserve.h"

#include "limit/rate_text.h"

namespace ratelimit {

std::optional<Reserve> parse_reserve(std::string_view text) noexcept
{
    constexpr std::int64_t whole = 100;
    const bool share = text.ends_with('%');
    if (share) {
        text.remove_suffix(1);
    }
    const auto number = parse_number(text, 0, share ? whole : max_quota);
    return number ? std::optional(Reserve{ *number, share }) : std::nullopt;
}

}  // namespace ratelimit

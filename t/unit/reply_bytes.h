#pragma once

#include "redis/call.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace ratelimit {

/// The numbers of a call or a reply of a script: little-endian doubles.
inline std::string doubles(std::initializer_list<double> numbers)
{
    std::string text;
    for (const double number : numbers) {
        const auto bits = std::bit_cast<std::uint64_t>(number);
        for (unsigned shift = 0; shift < 64; shift += 8) {
            text += static_cast<char>(bits >> shift);
        }
    }
    return text;
}

/// The reply of sequence_script to one call. Redis's time is at its end.
inline redis::ReplyPart to_one_call(std::string_view reply)
{
    const std::size_t own = reply.size() - std::min(reply.size(), sizeof(double));
    return { reply.substr(0, own), reply.substr(own) };
}

}  // namespace ratelimit

#pragma once

#include <cstdint>
#include <string_view>

namespace ratelimit {

/// What only this node knows: without it, a client cannot choose keys whose hashes are equal.
struct HashSecret {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
};

/// Of random numbers of the system. Throws if there are none.
HashSecret random_secret();

/// SipHash-1-3 of a text: J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF".
std::uint64_t keyed_hash(const HashSecret& secret, std::string_view text) noexcept;

}  // namespace ratelimit

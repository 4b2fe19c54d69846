#pragma once

#include <cstdint>
#include <string_view>

namespace ratelimit {

/// A request of one key under one policy.
struct KeyedRequest {
    std::string_view key;
    std::uint64_t policy_hash;  // Zone::policy_hash
    std::int64_t cost;

    /// The tag of the key's entry for this policy. Rarely two policies have the same tag.
    std::uint32_t tag() const noexcept { return static_cast<std::uint32_t>(policy_hash); }
};

}  // namespace ratelimit

#pragma once

#include "nginx/ngx.h"

#include <cstdint>
#include <string_view>

namespace ratelimit {

/// A request of one key under one policy.
struct KeyedRequest {
    std::string_view key;
    std::uint64_t policy_hash;  // Zone::policy_hash
    std::int64_t cost;

    /// The tag of the key's entry for this policy. Different policies may have the same tag.
    u_char tag() const noexcept { return static_cast<u_char>(policy_hash); }
};

}  // namespace ratelimit

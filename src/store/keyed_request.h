#pragma once

#include "nginx/ngx.h"

#include <cstdint>
#include <string_view>

namespace ratelimit {

/// A request of one key under one policy.
struct KeyedRequest {
    std::string_view key;
    std::uint64_t policy_hash;  // of all that decides but key, cost and time
    std::int64_t cost;

    /// Of the key's entry under this policy: other policies may have the same.
    u_char tag() const noexcept { return static_cast<u_char>(policy_hash); }
};

}  // namespace ratelimit

#pragma once

#include "limit/key_answer.h"
#include "limit/policy.h"

#include <cstdint>
#include <string_view>

namespace ratelimit {

/// Who keeps what Redis answers of the keys of a zone with ahead=. Must outlive the client's calls.
class AheadOwner {
public:
    /// Redis has counted units of the key, and answered. `unanswered`: the units of the key that
    /// this worker has let in and that have no answer yet.
    virtual void ahead_answered(
        std::string_view key, std::uint64_t policy_hash, const Policy& policy,
        const KeyAnswer& answer, std::int64_t unanswered) const noexcept = 0;
    /// A connection was lost: Redis may have counted units of the key or not.
    virtual void ahead_uncertain(
        std::string_view key, std::uint64_t policy_hash) const noexcept = 0;

protected:
    ~AheadOwner() = default;
};

}  // namespace ratelimit

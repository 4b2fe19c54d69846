#pragma once

#include "check/script_call.h"
#include "limit/run_reply.h"

#include <cstdint>
#include <string_view>

namespace ratelimit {

/// Who keeps the tokens of a zone with lease=. Must outlive the client's calls.
class LeaseOwner {
public:
    /// A renewal has ended: Redis granted `answer.taken` requests of this cost, 0 if it failed.
    /// `sent`: a lower bound of the time at which they were counted.
    virtual void lease_renewed(
        std::string_view key, std::uint64_t policy_hash, const LimitCheck& check,
        const RunReply& answer, microseconds sent) const noexcept = 0;

protected:
    ~LeaseOwner() = default;
};

/// The key whose lease is renewed, as its owner knows it.
struct LeasedKey {
    std::string_view key;
    std::uint64_t policy_hash;
    const LeaseOwner& owner;
};

}  // namespace ratelimit

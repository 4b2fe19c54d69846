#pragma once

#include "limit/policy.h"
#include "limit/verdict.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

using std::chrono::milliseconds;

/// A limit that was changed at run time, for one key or a whole zone.
struct Override {
    enum class Kind : std::uint8_t {
        unknown,      // of a later version: the limit stays as configured
        rate,         // `rate`, and `burst` if it has a value
        concurrency,  // `rate.quota` requests at one time
        block,        // every request is refused
        unlimited,    // the limit does not apply
    };

    Kind kind = Kind::unknown;
    Rate rate;
    std::optional<std::int64_t> burst;
    milliseconds end{ 0 };  // since the epoch, by Redis's clock; 0: none

    /// What is left at this time; negative or zero: the override has ended. Only if there is an
    /// end.
    milliseconds rest(milliseconds now) const noexcept { return end - now; }
    bool has_ended(milliseconds now) const noexcept { return end.count() != 0 && end <= now; }

    friend bool operator==(const Override&, const Override&) = default;
};

/// Tells whether two sets of overrides are the same.
struct OverrideDigest {
    static constexpr std::uint64_t modulus = std::uint64_t{ 1 } << 52U;

    std::uint64_t count = 0;
    std::uint64_t sum = 0;  // of the versions, modulo `modulus`

    friend bool operator==(const OverrideDigest&, const OverrideDigest&) = default;
};

/// The longest Retry-After of a block that has no end.
inline constexpr std::chrono::hours endless_block{ 24 };

/// Why a zone of this policy cannot have the override: one line for the API. Empty: it can.
std::string_view misfit(const Override& override, const Policy& policy) noexcept;

/// Changes `policy` by an override of kind rate or concurrency. Without a burst of its own, an
/// override keeps the policy's. An override of another kind, or one that does not fit the policy,
/// changes nothing. With calendar periods, what was counted in a period stays: only a block is the
/// override's own.
void apply(const Override& override, Policy& policy) noexcept;

/// A verdict by a policy that `apply` has set ends with the override, after `rest`. With calendar
/// periods only a block does, since what was counted stays.
void end_with_override(Verdict& state, const Policy& policy, microseconds rest) noexcept;

}  // namespace ratelimit

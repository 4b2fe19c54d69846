#pragma once

#include "limit/policy.h"
#include "store/zone_memory.h"

#include <string>
#include <string_view>

namespace ratelimit {

/// Whose time decides.
enum class Clock : std::uint8_t { redis, local };

/// One ratelimit_zone, apart from how nginx evaluates its key and rate.
struct Zone {
    std::string name;
    Policy policy;  // its rate has a quota of 0 when each request brings its own
    Clock clock = Clock::redis;
    std::int64_t nodes = 1;  // that share it, for FailMode::local
    bool cache = true;       // refusals are remembered
    std::int64_t lease = 0;  // requests that are leased for a busy key, at most; 0: none
    std::string key_start;   // of every Redis key: prefix, name and ":{"
    /// Tells where in Redis its keys are from other places: after a reload, refusals and leases of
    /// keys in another place do not apply.
    std::uint64_t storage_id = 0;

    ngx_shm_zone_t* shared = nullptr;                // this node's memory of it
    microseconds remembered = DenialCache::longest;  // a refusal, at most

    /// After nginx has initialised `shared`.
    ZoneMemory memory() const noexcept { return ZoneMemory(*shared); }

    /// A hash of all that decides a limit of this zone but key, cost and time.
    std::uint64_t policy_hash(const Policy& of) const noexcept;

    /// Which of a key's records this policy counts in. Where the rate is a variable, a window
    /// algorithm has one for each length of window, as counts of one length say nothing exact about
    /// another: the length in seconds. 0: the key has one record.
    std::uint32_t record_of(const Policy& of) const noexcept;

    /// How long redis_key's result is for this key, at most.
    std::size_t redis_key_length(std::string_view key) const noexcept
    {
        constexpr std::size_t end = std::char_traits<char>::length("}:4294967295");
        return key_start.size() + key.size() + end;
    }

    /// Writes `prefix name:{key}`, and `:record` unless that is 0, to `out`, which has room for
    /// redis_key_length. The braces keep all zones that count by one key in one hash slot of a
    /// cluster.
    std::string_view redis_key(
        std::string_view key, std::uint32_t record, char* out) const noexcept;
};

/// A longer key is counted under a hash of 128 bits instead.
inline constexpr std::size_t max_key_length = 128;

}  // namespace ratelimit

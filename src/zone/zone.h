#pragma once

#include "limit/policy.h"
#include "store/zone_memory.h"

#include <string>
#include <string_view>

namespace ratelimit {

/// Whose clock decides.
enum class Clock : std::uint8_t { redis, local };

/// One ratelimit_zone, without the nginx expressions for its key and rate.
struct Zone {
    std::string name;
    Policy policy;  // a quota of 0: the rate is a variable, and each request has its own
    Clock clock = Clock::redis;
    std::int64_t nodes = 1;  // how many share the zone, for FailMode::local
    bool cache = true;       // refusals are remembered
    std::int64_t lease = 0;  // the most requests to lease for a busy key; 0: none
    std::string key_start;   // the start of every Redis key: prefix, name and ":{"
    /// Identifies where in Redis the keys are. If a reload changes that, remembered refusals and
    /// leases no longer apply.
    std::uint64_t storage_id = 0;

    ngx_shm_zone_t* shared = nullptr;                // the zone's memory on this node
    microseconds remembered = DenialCache::longest;  // how long a refusal is, at most

    /// Call after nginx has initialised `shared`.
    ZoneMemory memory() const noexcept { return ZoneMemory(*shared); }

    /// A hash of all that a decision of this zone depends on, except key, cost and time.
    std::uint64_t policy_hash(const Policy& of) const noexcept;

    /// Which of a key's records counts by this policy. With a variable rate, a window algorithm has
    /// a record for each length of window, because the counts of one length cannot be converted
    /// exactly to another. The record's number is the length in seconds. 0: the key's only record.
    std::uint32_t record_of(const Policy& of) const noexcept;

    /// An upper bound of the length of redis_key's result for this key.
    std::size_t redis_key_length(std::string_view key) const noexcept
    {
        constexpr std::size_t end = std::char_traits<char>::length("}:4294967295");
        return key_start.size() + key.size() + end;
    }

    /// Writes prefix, name, `:{key}`, and `:record` unless that is 0, to `out`, which must have
    /// room for redis_key_length. The braces put all zones with the same key in one hash slot of a
    /// cluster.
    std::string_view redis_key(
        std::string_view key, std::uint32_t record, char* out) const noexcept;
};

/// In bytes. A longer key is replaced by a hash of 128 bits.
inline constexpr std::size_t max_key_length = 128;

}  // namespace ratelimit

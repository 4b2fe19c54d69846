#include "zone/zone.h"

#include <charconv>

namespace ratelimit {

namespace {

/// Multiplicative hashing (Knuth, TAOCP, section 6.4); the high half is folded into the low one.
std::uint64_t mixed(std::uint64_t hash, std::int64_t word) noexcept
{
    constexpr std::uint64_t golden = 0x9E37'79B9'7F4A'7C15;
    hash = (hash ^ static_cast<std::uint64_t>(word)) * golden;
    return hash ^ hash >> 32U;
}

}  // namespace

std::uint64_t Zone::policy_hash(const Policy& of) const noexcept
{
    std::uint64_t hash = mixed(storage_id, static_cast<std::int64_t>(of.algorithm));
    hash = mixed(hash, static_cast<std::int64_t>(clock));
    hash = mixed(hash, of.rate.quota);
    hash = mixed(hash, of.rate.window.count());
    hash = mixed(hash, of.limit());
    if (of.algorithm == Algorithm::sliding_window_buckets) {
        hash = mixed(hash, of.bucket_width().count());
    }
    if (of.block.count() > 0) {
        hash = mixed(hash, of.block.count());
    }
    return hash;
}

std::uint32_t Zone::record_of(const Policy& of) const noexcept
{
    const bool variable_rate = policy.rate.quota == 0;
    return variable_rate && !keeps_arrival_time(of.algorithm)
        ? static_cast<std::uint32_t>(of.rate.window / std::chrono::seconds{ 1 })
        : 0;
}

std::string_view Zone::redis_key(
    std::string_view key, std::uint32_t record, char* out) const noexcept
{
    char* end = out;
    end += key_start.copy(end, key_start.size());
    end += key.copy(end, key.size());
    *end++ = '}';
    if (record != 0) {
        *end++ = ':';
        end = std::to_chars(end, out + redis_key_length(key), record).ptr;
    }
    return { out, static_cast<std::size_t>(end - out) };
}

}  // namespace ratelimit

#include "zone/zone.h"

#include <algorithm>
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
    const bool variable = policy.rate.quota == 0;
    const bool own_window = !variable && of.rate.window == policy.rate.window;
    if (!keeps_arrival_time(of.algorithm)) {
        return own_window ? 0
                          : static_cast<std::uint32_t>(of.rate.window / std::chrono::seconds{ 1 });
    }
    if (variable || (own_window && of.rate.quota == policy.rate.quota)) {
        return 0;
    }
    constexpr std::uint64_t most = (std::uint64_t{ 1 } << 30U) - 1;
    return static_cast<std::uint32_t>(
        1 + mixed(mixed(0, of.rate.quota), of.rate.window.count()) % (most - 1));
}

microseconds Zone::block_rest(const Override& block, microseconds (*now)() noexcept) const noexcept
{
    if (block.end.count() == 0) {
        return endless_block;
    }
    return std::max(block.rest(FleetMemory(*fleet).redis_time(now())), milliseconds{ 1 });
}

std::optional<Override> Zone::find_override(
    std::string_view key, microseconds (*now)() noexcept) const noexcept
{
    const FleetMemory memory(*fleet);
    const std::uint64_t zone = override_slot->zone.load(std::memory_order_relaxed);
    const auto in_force = [&](std::string_view of) -> std::optional<Override> {
        const auto found = memory.table().find(zone, of);
        if (!found || found->value.kind == Override::Kind::unknown
            || !misfit(found->value, policy.algorithm).empty()
            || (found->value.end.count() != 0
                && found->value.has_ended(memory.redis_time(now())))) {
            return std::nullopt;
        }
        return found->value;
    };
    if (override_slot->keys.load(std::memory_order_relaxed) != 0) {
        if (auto found = in_force(key)) {
            return found;
        }
    }
    return override_slot->whole.load(std::memory_order_relaxed) != 0 ? in_force({}) : std::nullopt;
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

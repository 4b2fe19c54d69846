#include "redis/hash_ring.h"

#include "base/hash.h"

#include "redis/hash_slot.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ratelimit::redis {

namespace {

/// MurmurHash3's 64-bit finalizer (A. Appleby): every bit of the result depends on all of `bits`.
constexpr std::uint64_t mixed(std::uint64_t bits) noexcept
{
    bits ^= bits >> 33U;
    bits *= 0xff51afd7ed558ccdU;
    bits ^= bits >> 33U;
    bits *= 0xc4ceb9fe1a85ec53U;
    return bits ^ bits >> 33U;
}

}  // namespace

HashRing::HashRing(std::span<const Member> members) : single_(members.size() == 1)
{
    for (std::uint32_t i = 0; i < members.size(); ++i) {
        const int count = members[i].weight * points_per_weight;
        for (int point = 0; point < count; ++point) {
            const auto text = members[i].name + "-" + std::to_string(point);
            points_.push_back({ mixed(fnv1a(text)), i });
        }
    }
    std::ranges::sort(
        points_, {}, [](const Point& point) { return std::pair(point.position, point.member); });
}

std::uint32_t HashRing::member_of(std::string_view key) const noexcept
{
    if (single_) {
        return 0;
    }
    std::uint64_t probe = fnv1a(hash_tag(key));
    std::uint64_t least_distance = std::numeric_limits<std::uint64_t>::max();
    std::uint32_t member = 0;
    for (int i = 0; i < probes; ++i) {
        probe = mixed(probe + 1);
        auto next = std::ranges::lower_bound(points_, probe, {}, &Point::position);
        if (next == points_.end()) {
            next = points_.begin();
        }
        const std::uint64_t distance = next->position - probe;  // modulo 2^64, as the ring is round
        if (distance < least_distance) {
            least_distance = distance;
            member = next->member;
        }
    }
    return member;
}

}  // namespace ratelimit::redis

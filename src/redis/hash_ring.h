#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

/// Assigns keys to servers by consistent hashing: adding or removing one of N servers moves about
/// 1/N of the keys. A server has 160 points for each unit of its weight. A key has eight probes,
/// and belongs to the point that follows any of them at the smallest distance (multi-probe
/// consistent hashing, Appleton and O'Reilly 2015). So each server's share is within a tenth of its
/// weight's; with one probe it would be within a fifth.
///
/// The positions of points and probes must never change: all nodes must agree on them.
class HashRing {
public:
    struct Member {
        std::string name;  // decides the positions of its points
        int weight = 1;
    };

    static constexpr int points_per_weight = 160;
    static constexpr int probes = 8;

    explicit HashRing(std::span<const Member> members);

    /// The index of the member that has the key. Depends only on the key's hash tag.
    std::uint32_t member_of(std::string_view key) const noexcept;

private:
    struct Point {
        std::uint64_t position;
        std::uint32_t member;
    };

    std::vector<Point> points_;  // sorted by position
    bool single_;
};

}  // namespace ratelimit::redis

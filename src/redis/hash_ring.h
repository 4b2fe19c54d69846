#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

/// Which of several servers has a key, so that adding or removing one of N moves about 1/N of the
/// keys, whatever node computes it. Consistent hashing with 160 points for each unit of a server's
/// weight. A key belongs to the point that comes soonest after any of its eight probes (multi-probe
/// consistent hashing, Appleton and O'Reilly 2015), which keeps every server's share within a tenth
/// of fair where one probe leaves it a fifth off.
///
/// The places of points and probes are a contract with every other node: they never change.
class HashRing {
public:
    struct Member {
        std::string name;  // decides its points
        int weight = 1;
    };

    static constexpr int points_per_weight = 160;
    static constexpr int probes = 8;

    explicit HashRing(std::span<const Member> members);

    /// The index of the key's member; by the key's hash tag.
    std::uint32_t member_of(std::string_view key) const noexcept;

private:
    struct Point {
        std::uint64_t place;
        std::uint32_t member;
    };

    std::vector<Point> points_;  // in order of their places
    bool single_;
};

}  // namespace ratelimit::redis

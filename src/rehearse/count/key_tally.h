#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// What a limit did to a key.
struct KeyCount {
    std::uint64_t requests = 0;
    std::uint64_t refused = 0;
};

/// A key as it is reported.
struct BusyKey {
    std::string key;
    KeyCount count;

    /// The busiest is first.
    friend bool operator<(const BusyKey& left, const BusyKey& right) noexcept
    {
        if (left.count.requests != right.count.requests) {
            return left.count.requests > right.count.requests;
        }
        return left.count.refused != right.count.refused ? left.count.refused > right.count.refused
                                                         : left.key < right.key;
    }
};

/// The counts of keys whose state no longer matters, so that a key that comes back goes on counting
/// and the number of different keys is known. Keys are distinguished by 64 bits of a hash.
///
/// Up to `most` keys it is exact. Beyond that it keeps a sample, half as dense each time it is full
/// (adaptive sampling: Flajolet, Computing 43, 1990), and the numbers of keys are estimates.
class KeyTally {
public:
    /// `limits`: how many limits each key is counted for.
    explicit KeyTally(std::size_t limits) : limits_(limits) {}

    static constexpr std::size_t most = std::size_t{ 1 } << 20U;  // keys

    void put(std::uint64_t hash, const KeyCount* counts);

    /// The counts of a key, `limits` of them, which are 0 if it is new; valid until the next call.
    /// Null: the key is not in the sample.
    KeyCount* find_or_add(std::uint64_t hash);

    /// How many keys have counts for which `holds(counts)`.
    template <class Holds>
    std::uint64_t count_if(Holds&& holds) const
    {
        std::uint64_t count = 0;
        for (std::size_t i = 0; i < hashes_.size(); ++i) {
            count += hashes_[i] > 1 && holds(&counts_[i * limits_]) ? 1 : 0;
        }
        return count << level_;
    }

    /// Moves a key's counts to `counts`. False: there are none.
    bool take(std::uint64_t hash, KeyCount* counts);

    struct Numbers {
        std::uint64_t keys = 0;          // with a request
        std::uint64_t keys_refused = 0;  // with a refusal
    };
    Numbers numbers(std::size_t limit) const;
    bool exact() const noexcept { return level_ == 0; }

private:
    bool in_sample(std::uint64_t hash) const noexcept
    {
        return level_ == 0 || hash >> (64U - level_) == 0;
    }
    void thin_out();
    void rehash(std::size_t size);
    std::size_t place_of(std::uint64_t hash) const noexcept;

    std::size_t limits_;
    unsigned level_ = 0;  // one of 2^level keys is kept
    // Open addressing; a hash of 0 is an empty place, 1 a removed one.
    std::vector<std::uint64_t> hashes_;
    std::vector<KeyCount> counts_;  // `limits_` for each place
    std::size_t used_ = 0;          // places that are not empty
    std::size_t keys_ = 0;
};

}  // namespace ratelimit::rehearse

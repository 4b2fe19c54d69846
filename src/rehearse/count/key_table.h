#pragma once

#include "rehearse/count/first_keys.h"
#include "rehearse/count/key_state.h"
#include "rehearse/count/key_tally.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// The keys of one zone: their states, and what each limit of the zone did to them. Keys whose
/// state no longer matters are removed as others are added, so that the memory is bounded by the
/// keys that are alive at a time, and by KeyTally::most.
class KeyTable {
public:
    /// Policy::record: with a variable rate, a window algorithm has a state for each length of
    /// window.
    struct KeyRecord {
        std::uint32_t number = 0;
        KeyState state;
    };
    struct Key {
        std::string text;
        std::uint64_t hash = 0;
        std::int64_t expires = 0;        // us since the epoch; from then on nothing here matters
        std::int64_t blocked_until = 0;  // us since the epoch
        KeyRecord first;
        std::vector<KeyRecord> others;
    };

    KeyTable(Algorithm algorithm, std::size_t limits, std::size_t busiest);

    /// Finds or adds the key of a hash. The reference, and all earlier ones, are valid until the
    /// next call. `text`: of a key that is added.
    Key& find(std::string_view text, std::uint64_t hash, std::int64_t now);
    static std::uint64_t hash_of(std::string_view text) noexcept
    {
        return std::hash<std::string_view>{}(text);
    }

    /// Valid until the next call of this or `find`.
    KeyRecord& record_of(Key& key, std::uint32_t number) const;
    KeyCount& count(const Key& key, std::size_t limit)
    {
        return counts_[static_cast<std::size_t>(&key - keys_.data()) * limits_ + limit];
    }

    /// The totals, with the keys that were removed.
    KeyTally::Numbers numbers(std::size_t limit) const;
    std::vector<BusyKey> busiest(std::size_t limit) const;
    bool exact() const noexcept { return forgotten_.exact(); }
    std::size_t alive() const noexcept { return keys_.size(); }

private:
    std::size_t place_of(std::uint64_t hash) const noexcept;
    void make_room(std::int64_t now);
    void remove_expired(std::int64_t now);
    void index_all(std::size_t size);

    static constexpr std::uint32_t no_key = 0xFFFFFFFF;

    Algorithm algorithm_;
    std::size_t limits_;
    std::vector<Key> keys_;
    std::vector<KeyCount> counts_;      // `limits_` for each key
    std::vector<std::uint32_t> index_;  // open addressing: indices of keys_
    KeyTally forgotten_;
    std::size_t busiest_;                                // keys of `busiest`
    std::vector<FirstKeys<BusyKey>> busiest_forgotten_;  // of each limit
};

}  // namespace ratelimit::rehearse

#include "rehearse/count/key_table.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

constexpr std::size_t smallest = 1024;  // places of the index

}  // namespace

KeyTable::KeyTable(Algorithm algorithm, std::size_t limits, std::size_t busiest)
    : algorithm_(algorithm),
      limits_(limits),
      index_(smallest, no_key),
      forgotten_(limits),
      busiest_(busiest),
      busiest_forgotten_(limits, FirstKeys<BusyKey>(busiest))
{
}

/// The place of a key in the index, or the empty place where it would be.
std::size_t KeyTable::place_of(std::uint64_t hash) const noexcept
{
    std::size_t place = hash & (index_.size() - 1);
    while (index_[place] != no_key && keys_[index_[place]].hash != hash) {
        place = (place + 1) & (index_.size() - 1);
    }
    return place;
}

KeyTable::Key& KeyTable::find(std::string_view text, std::uint64_t hash, std::int64_t now)
{
    std::size_t place = place_of(hash);
    if (index_[place] != no_key) {
        return keys_[index_[place]];
    }
    if (keys_.size() >= index_.size() / 2) {
        make_room(now);
        place = place_of(hash);
    }
    index_[place] = static_cast<std::uint32_t>(keys_.size());
    Key& key = keys_.emplace_back();
    key.text = text;
    key.hash = hash;
    key.first.state = empty_state(algorithm_);
    key.expires = now;
    counts_.resize(counts_.size() + limits_);
    forgotten_.take(hash, &counts_[counts_.size() - limits_]);
    return key;
}

KeyTable::KeyRecord& KeyTable::record_of(Key& key, std::uint32_t number) const
{
    if (key.first.number == 0) {
        key.first.number = number;
    }
    if (key.first.number == number) {
        return key.first;
    }
    for (KeyRecord& other : key.others) {
        if (other.number == number) {
            return other;
        }
    }
    return key.others.emplace_back(KeyRecord{ number, empty_state(algorithm_) });
}

/// The index doubles only if more than half of the keys matter, so that this costs a constant time
/// for each key that is added.
void KeyTable::make_room(std::int64_t now)
{
    remove_expired(now);
    index_all(keys_.size() > index_.size() / 4 ? index_.size() * 2 : index_.size());
}

void KeyTable::remove_expired(std::int64_t now)
{
    std::size_t kept = 0;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
        KeyCount* counts = &counts_[i * limits_];
        if (keys_[i].expires <= now) {
            for (std::size_t limit = 0; limit < limits_; ++limit) {
                busiest_forgotten_[limit].offer({ keys_[i].text, counts[limit] });
            }
            forgotten_.put(keys_[i].hash, counts);
            continue;
        }
        if (kept != i) {
            keys_[kept] = std::move(keys_[i]);
            std::copy_n(counts, limits_, &counts_[kept * limits_]);
        }
        ++kept;
    }
    keys_.erase(keys_.begin() + static_cast<std::ptrdiff_t>(kept), keys_.end());
    counts_.resize(kept * limits_);
}

void KeyTable::index_all(std::size_t size)
{
    index_.assign(size, no_key);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
        std::size_t place = keys_[i].hash & (size - 1);
        while (index_[place] != no_key) {
            place = (place + 1) & (size - 1);
        }
        index_[place] = static_cast<std::uint32_t>(i);
    }
}

KeyTally::Numbers KeyTable::numbers(std::size_t limit) const
{
    KeyTally::Numbers out = forgotten_.numbers(limit);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
        const KeyCount& count = counts_[i * limits_ + limit];
        out.keys += count.requests > 0 ? 1 : 0;
        out.keys_refused += count.refused > 0 ? 1 : 0;
    }
    return out;
}

std::vector<BusyKey> KeyTable::busiest(std::size_t limit) const
{
    FirstKeys<BusyKey> all = busiest_forgotten_[limit];
    for (std::size_t i = 0; i < keys_.size(); ++i) {
        const KeyCount& count = counts_[i * limits_ + limit];
        if (count.requests > 0) {
            all.offer({ keys_[i].text, count });
        }
    }
    return all.list(busiest_);
}

}  // namespace ratelimit::rehearse

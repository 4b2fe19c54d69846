#include "rehearse/count/key_tally.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

constexpr std::uint64_t empty_place = 0;
constexpr std::uint64_t removed_place = 1;

/// The hash, but not 0 or 1, which mark free places.
std::uint64_t stored(std::uint64_t hash) noexcept
{
    return hash <= removed_place ? hash + 2 : hash;
}

}  // namespace

/// The place of a hash, or the empty one where it would be.
std::size_t KeyTally::place_of(std::uint64_t hash) const noexcept
{
    std::size_t place = hash & (hashes_.size() - 1);
    while (hashes_[place] != empty_place && hashes_[place] != hash) {
        place = (place + 1) & (hashes_.size() - 1);
    }
    return place;
}

void KeyTally::rehash(std::size_t size)
{
    std::vector<std::uint64_t> hashes(size, empty_place);
    std::vector<KeyCount> counts(size * limits_);
    std::swap(hashes, hashes_);
    std::swap(counts, counts_);
    used_ = 0;
    keys_ = 0;
    for (std::size_t i = 0; i < hashes.size(); ++i) {
        if (hashes[i] > removed_place && in_sample(hashes[i])) {
            const std::size_t place = place_of(hashes[i]);
            hashes_[place] = hashes[i];
            std::copy_n(&counts[i * limits_], limits_, &counts_[place * limits_]);
            ++used_;
            ++keys_;
        }
    }
}

/// Halves the sample until there is room.
void KeyTally::thin_out()
{
    while (keys_ >= most) {
        ++level_;
        rehash(hashes_.size());
    }
}

KeyCount* KeyTally::find_or_add(std::uint64_t hash)
{
    hash = stored(hash);
    if (!in_sample(hash)) {
        return nullptr;
    }
    if (keys_ > 0) {
        const std::size_t known = place_of(hash);
        if (hashes_[known] == hash) {
            return &counts_[known * limits_];
        }
    }
    if (keys_ >= most) {
        thin_out();
        if (!in_sample(hash)) {
            return nullptr;
        }
    }
    constexpr std::size_t least_places = 1024;
    if (hashes_.size() < least_places) {
        rehash(least_places);
    } else if (used_ >= hashes_.size() / 4 * 3) {
        rehash(keys_ > hashes_.size() / 2 ? hashes_.size() * 2 : hashes_.size());
    }
    const std::size_t place = place_of(hash);
    hashes_[place] = hash;
    ++used_;
    ++keys_;
    std::fill_n(&counts_[place * limits_], limits_, KeyCount{});
    return &counts_[place * limits_];
}

void KeyTally::put(std::uint64_t hash, const KeyCount* counts)
{
    if (KeyCount* place = find_or_add(hash)) {
        std::copy_n(counts, limits_, place);
    }
}

bool KeyTally::take(std::uint64_t hash, KeyCount* counts)
{
    if (keys_ == 0) {
        return false;
    }
    const std::size_t place = place_of(stored(hash));
    if (hashes_[place] == empty_place) {
        return false;
    }
    std::copy_n(&counts_[place * limits_], limits_, counts);
    hashes_[place] = removed_place;
    --keys_;
    return true;
}

KeyTally::Numbers KeyTally::numbers(std::size_t limit) const
{
    return { count_if([limit](const KeyCount* counts) { return counts[limit].requests > 0; }),
             count_if([limit](const KeyCount* counts) { return counts[limit].refused > 0; }) };
}

}  // namespace ratelimit::rehearse

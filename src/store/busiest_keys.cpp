#include "store/busiest_keys.h"

#include "store/slab_lock.h"

#include <algorithm>

namespace ratelimit {

namespace {

std::uint32_t hash_of(std::string_view key) noexcept
{
    return ngx_crc32_short(reinterpret_cast<u_char*>(const_cast<char*>(key.data())), key.size());
}

/// The clock may have been set back since.
bool has_lapsed(const BusiestKeys::Counter& counter, time_t now) noexcept
{
    return counter.refused == 0 || now - counter.last >= BusiestKeys::lapses_s;
}

}  // namespace

void BusiestKeys::Shared::init(std::size_t counters) noexcept
{
    capacity = static_cast<std::uint32_t>(counters);
    used = 0;
    last = 0;
}

std::size_t BusiestKeys::capacity_for(std::size_t zone, std::size_t spare) noexcept
{
    constexpr std::size_t most = 128;
    constexpr std::size_t share = 50;  // of the zone that they may take, one part in so many
    return std::min(std::max(spare, zone / share) / sizeof(Counter), most);
}

BusiestKeys::Counter* BusiestKeys::find(std::string_view key, std::uint32_t hash) const noexcept
{
    const auto is_it = [&](const Counter& counter) {
        return counter.hash == hash && counter.refused != 0 && counter.key() == key;
    };
    const auto all = in_use();
    // A flood is mostly of one key.
    if (shared_->last < all.size() && is_it(all[shared_->last])) {
        return &all[shared_->last];
    }
    const auto found = std::find_if(all.begin(), all.end(), is_it);
    return found == all.end() ? nullptr : &*found;
}

/// A counter that is free, has lapsed, or is the smallest.
BusiestKeys::Counter& BusiestKeys::take_over(time_t now) noexcept
{
    Counter* smallest = &counters().front();
    for (Counter& counter : in_use()) {
        if (has_lapsed(counter, now)) {
            counter.refused = 0;
            return counter;
        }
        if (counter.refused < smallest->refused) {
            smallest = &counter;
        }
    }
    if (shared_->used == shared_->capacity) {
        return *smallest;
    }
    Counter& next = counters()[shared_->used++];
    next.refused = 0;
    return next;
}

void BusiestKeys::refuse(std::string_view key, time_t now) noexcept
{
    if (shared_->capacity == 0) {
        return;
    }
    key = key.substr(0, KeyedNode::key_limit);
    const std::uint32_t hash = hash_of(key);
    const SlabLock lock(pool_);

    Counter* counter = find(key, hash);
    if (counter == nullptr || has_lapsed(*counter, now)) {
        if (counter == nullptr) {
            counter = &take_over(now);
        } else {
            counter->refused = 0;
        }
        counter->error = counter->refused;
        counter->hash = hash;
        counter->length = static_cast<std::uint32_t>(key.size());
        key.copy(counter->bytes.data(), key.size());
    }
    ++counter->refused;
    counter->last = now;
    shared_->last = static_cast<std::uint32_t>(counter - counters().data());
}

void BusiestKeys::forget(std::string_view key) noexcept
{
    key = key.substr(0, KeyedNode::key_limit);
    const SlabLock lock(pool_);

    if (Counter* counter = find(key, hash_of(key))) {
        counter->refused = 0;
    }
}

std::size_t BusiestKeys::top(std::span<Counter> out, time_t now) const noexcept
{
    const auto more = [](const Counter& left, const Counter& right) {
        return left.refused > right.refused;
    };
    std::size_t count = 0;
    const SlabLock lock(pool_);

    // By insertion: they are few.
    for (const Counter& counter : in_use()) {
        if (has_lapsed(counter, now)
            || (count == out.size() && (count == 0 || !more(counter, out.back())))) {
            continue;
        }
        std::size_t place = count < out.size() ? count++ : count - 1;
        for (; place > 0 && more(counter, out[place - 1]); --place) {
            out[place] = out[place - 1];
        }
        out[place] = counter;
    }
    return count;
}

}  // namespace ratelimit

#include "store/top_refused.h"

#include "store/zone_lock.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// Whether the counter is free or its key has expired. `last_s` is ahead if the clock was set back.
bool has_lapsed(const TopRefused::Rank& rank, std::uint32_t now_s) noexcept
{
    return rank.refused == 0
        || (now_s > rank.last_s && now_s - rank.last_s >= TopRefused::lapses_s);
}

/// Whether the key was counted last in this step. The time of the worker that did may be a little
/// later than that of this one.
bool is_current(const TopRefused::Key& key, std::uint32_t step) noexcept
{
    return key.step == step || key.step == step + 1;
}

/// TopRefused::Counter::per_1000_s.
std::uint64_t present_rate(const TopRefused::Key& key, std::uint32_t now_s) noexcept
{
    constexpr std::uint64_t per_s = 1000;
    const std::uint32_t step = now_s / TopRefused::step_s;
    const std::uint64_t refused = is_current(key, step) ? std::uint64_t{ key.in_step } + key.before
        : key.step + 1 == step                          ? key.in_step
                                                        : 0;
    return per_s * refused / (TopRefused::step_s + now_s % TopRefused::step_s);
}

/// Whether the left one comes first.
bool is_busier(const TopRefused::Counter& left, const TopRefused::Counter& right) noexcept
{
    return left.per_1000_s != right.per_1000_s ? left.per_1000_s > right.per_1000_s
                                               : left.refused > right.refused;
}

}  // namespace

void TopRefused::Shared::init(std::size_t counters) noexcept
{
    capacity = static_cast<std::uint32_t>(counters);
    used = 0;
    last = 0;
}

std::size_t TopRefused::capacity_for(std::size_t zone, std::size_t spare) noexcept
{
    constexpr std::size_t most = 128;
    constexpr std::size_t share = 40;  // the counters may take 1/40 of the zone
    return std::min(std::max(spare, zone / share) / counter_size, most);
}

/// The index of the key's counter; `used` if it has none.
std::uint32_t TopRefused::find(std::string_view key, std::uint32_t hash) const noexcept
{
    std::uint32_t index = 0;
    for (; index < shared_->used; ++index) {
        const Rank& rank = ranks()[index];
        if (rank.hash == hash && rank.refused != 0 && keys()[index].view() == key) {
            break;
        }
    }
    return index;
}

/// The index of a counter that is free or expired, else of the smallest one.
std::uint32_t TopRefused::take_over(std::uint32_t now_s) noexcept
{
    std::uint32_t smallest = 0;
    for (std::uint32_t i = 0; i < shared_->used; ++i) {
        if (has_lapsed(ranks()[i], now_s)) {
            ranks()[i].refused = 0;
            return i;
        }
        if (ranks()[i].refused < ranks()[smallest].refused) {
            smallest = i;
        }
    }
    if (shared_->used == shared_->capacity) {
        return smallest;
    }
    ranks()[shared_->used].refused = 0;
    return shared_->used++;
}

void TopRefused::count(std::uint32_t index, std::uint32_t now_s, const Refusal& refusal) noexcept
{
    ++ranks()[index].refused;
    ranks()[index].last_s = now_s;
    Key& key = keys()[index];
    key.tried += refusal.tried ? 1 : 0;
    if (const std::uint32_t step = now_s / step_s; !is_current(key, step)) {
        key.before = key.step + 1 == step ? key.in_step : 0;
        key.in_step = 0;
        key.step = step;
    }
    key.in_step += refusal.tried ? 0 : 1;
    if (refusal.rate.quota != 0) {
        key.rate = refusal.rate;
    }
}

void TopRefused::refuse(std::string_view key, time_t now, const Refusal& refusal) noexcept
{
    if (shared_->capacity == 0) {
        return;
    }
    const auto now_s = static_cast<std::uint32_t>(now);
    const ZoneLock lock(pool_);

    // Fast path: a flood is mostly of one key.
    const std::uint32_t last = shared_->last;
    if (last < shared_->used && keys()[last].view() == key && !has_lapsed(ranks()[last], now_s)) {
        count(last, now_s, refusal);
        return;
    }
    const std::uint32_t hash = KeyedTree::hash_of(key);
    std::uint32_t index = find(key, hash);
    const bool known = index < shared_->used;
    if (!known || has_lapsed(ranks()[index], now_s)) {
        if (known) {
            ranks()[index].refused = 0;
        } else {
            index = take_over(now_s);
        }
        Key& held = keys()[index];
        held.error = ranks()[index].refused;
        held.tried = 0;
        held.rate = {};
        held.first_s = now_s;
        held.step = held.in_step = held.before = 0;
        held.length = static_cast<std::uint32_t>(key.copy(held.bytes.data(), key.size()));
        ranks()[index].hash = hash;
    }
    count(index, now_s, refusal);
    shared_->last = index;
}

void TopRefused::forget(std::string_view key) noexcept
{
    const ZoneLock lock(pool_);

    const std::uint32_t index = find(key, KeyedTree::hash_of(key));
    if (index < shared_->used) {
        ranks()[index].refused = 0;
    }
}

bool TopRefused::has(std::string_view key, time_t now) const noexcept
{
    const ZoneLock lock(pool_);

    const std::uint32_t index = find(key, KeyedTree::hash_of(key));
    return index < shared_->used && !has_lapsed(ranks()[index], static_cast<std::uint32_t>(now));
}

std::optional<Rate> TopRefused::last_rate(std::string_view key) const noexcept
{
    const ZoneLock lock(pool_);

    const std::uint32_t index = find(key, KeyedTree::hash_of(key));
    return index < shared_->used && keys()[index].rate.quota != 0
        ? std::optional(keys()[index].rate)
        : std::nullopt;
}

std::size_t TopRefused::top(std::span<Counter> out, time_t now) const noexcept
{
    std::size_t count = 0;
    const ZoneLock lock(pool_);

    // Insertion sort: there are few counters.
    const auto now_s = static_cast<std::uint32_t>(now);
    for (std::uint32_t i = 0; i < shared_->used; ++i) {
        if (has_lapsed(ranks()[i], now_s)) {
            continue;
        }
        const Counter counter{ ranks()[i].refused, present_rate(keys()[i], now_s), keys()[i] };
        if (count == out.size() && (count == 0 || !is_busier(counter, out.back()))) {
            continue;
        }
        std::size_t rank = count < out.size() ? count++ : count - 1;
        for (; rank > 0 && is_busier(counter, out[rank - 1]); --rank) {
            out[rank] = out[rank - 1];
        }
        out[rank] = counter;
    }
    return count;
}

}  // namespace ratelimit

#include "store/history.h"

#include "store/zone_lock.h"

#include <algorithm>
#include <bit>
#include <span>

namespace ratelimit {

namespace {

constexpr int digits = 11;  // binary digits of a value that a code keeps
constexpr std::uint16_t unknown_code = UINT16_MAX;

/// A value in 16 bits: an exponent, then the value's first 11 digits, rounded.
std::uint16_t encoded(std::uint64_t value) noexcept
{
    constexpr std::uint64_t most = std::uint64_t{ 1 } << 40U;
    value = std::min(value, most);
    const int exponent = std::max(static_cast<int>(std::bit_width(value)) - digits, 0);
    const std::uint64_t half = exponent == 0 ? 0 : std::uint64_t{ 1 } << (exponent - 1);
    const std::uint64_t mantissa = (value + half) >> exponent;
    // Rounding up may give one digit more.
    return mantissa >> digits == 0
        ? static_cast<std::uint16_t>(exponent << digits | static_cast<int>(mantissa))
        : static_cast<std::uint16_t>((exponent + 1) << digits | static_cast<int>(mantissa >> 1U));
}

std::uint64_t decoded(std::uint16_t code) noexcept
{
    return code == unknown_code ? History::unknown
                                : std::uint64_t{ code & ((1U << digits) - 1) } << (code >> digits);
}

History::Values decoded(const std::uint16_t* codes, std::size_t series) noexcept
{
    History::Values values{};
    std::transform(
        codes, codes + series, values.begin(), [](std::uint16_t code) { return decoded(code); });
    return values;
}

/// How many steps of a scale a zone with this number of series keeps.
constexpr std::size_t steps_of(std::size_t scale, std::size_t series) noexcept
{
    return scale == 0 && series < History::most_series ? History::short_steps
                                                       : History::scales[scale].steps;
}

constexpr std::size_t scale_of_uses = 1;

/// How many steps have the highest use of a key. More would take one of the few pages of a small
/// zone from its keys.
constexpr std::size_t uses_of(std::size_t series) noexcept
{
    return series < History::most_series ? History::short_uses
                                         : History::scales[scale_of_uses].steps;
}

constexpr std::size_t slots_of(std::size_t series) noexcept
{
    return (steps_of(0, series) + steps_of(1, series)) * series;
}

}  // namespace

std::size_t History::series_for(std::size_t zone) noexcept
{
    return zone < all_series_from ? 2 : most_series;
}

std::size_t History::slots_size(std::size_t series) noexcept
{
    return slots_of(series) * sizeof(std::uint16_t) + uses_of(series);
}

void History::Shared::init(std::size_t series_kept) noexcept
{
    series = static_cast<std::uint32_t>(series_kept);
    rolled_s = 0;
    totals = {};
    current = {};
    std::fill_n(slots, slots_of(series), unknown_code);
    std::fill_n(
        reinterpret_cast<std::uint8_t*>(slots + slots_of(series)), uses_of(series), unknown_use);
}

std::int64_t History::kept(std::size_t scale) const noexcept
{
    return static_cast<std::int64_t>(steps_of(scale, shared_->series));
}

std::uint16_t* History::slot(std::size_t scale, std::int64_t index) const noexcept
{
    const auto before = scale == 0 ? 0 : kept(0);
    return shared_->slots
        + static_cast<std::size_t>(before + index % kept(scale)) * shared_->series;
}

std::uint8_t& History::use(std::int64_t index) const noexcept
{
    auto* uses = reinterpret_cast<std::uint8_t*>(shared_->slots + slots_of(shared_->series));
    return uses[index % static_cast<std::int64_t>(uses_of(shared_->series))];
}

/// Makes the steps from `from` to before `until` unknown.
void History::forget(std::size_t scale, std::int64_t from, std::int64_t until) noexcept
{
    from = std::max(from, until - kept(scale));
    for (std::int64_t index = from; index < until; ++index) {
        std::fill_n(slot(scale, index), shared_->series, unknown_code);
        if (scale == scale_of_uses) {
            use(index) = unknown_use;
        }
    }
}

void History::add(
    std::size_t scale, std::int64_t index, const Values& counted,
    std::uint32_t highest_use) noexcept
{
    bool goes_on = true;
    Shared::Current& current = shared_->current[scale];
    if (index != current.index) {
        Values begun{};
        goes_on = false;
        if (index > current.index) {
            forget(scale, current.index + 1, index);
        } else {
            forget(scale, index + 1, current.index + 1);
            // A step that is still kept goes on.
            if (current.index - index < kept(scale) && *slot(scale, index) != unknown_code) {
                begun = decoded(slot(scale, index), shared_->series);
                goes_on = true;
            }
        }
        current = { index, begun };
    }
    for (std::size_t i = 0; i < shared_->series; ++i) {
        current.counted[i] += counted[i];
        slot(scale, index)[i] = encoded(current.counted[i]);
    }
    if (scale == scale_of_uses) {
        const auto now = static_cast<std::uint8_t>(std::min<std::uint32_t>(highest_use, 100));
        use(index) = goes_on && use(index) != unknown_use ? std::max(use(index), now) : now;
    }
}

void History::roll(time_t now, const Values& totals, std::uint32_t highest_use) noexcept
{
    const ZoneLock lock(pool_);

    const std::int64_t last = shared_->rolled_s;
    auto time = std::int64_t{ now };
    if (time < last && last - time <= small_step_back_s) {
        time = last;
    }
    Values counted{};
    for (std::size_t i = 0; i < most_series; ++i) {
        // Another worker may have read newer totals.
        counted[i] = totals[i] - std::min(totals[i], shared_->totals[i]);
        shared_->totals[i] = std::max(totals[i], shared_->totals[i]);
    }
    for (std::size_t scale = 0; scale < scales.size(); ++scale) {
        add(scale, time / scales[scale].step_s, counted, highest_use);
    }
    set_relaxed(shared_->rolled_s, std::int64_t{ time });
}

History::Steps History::read(std::size_t scale) const
{
    const std::int64_t count = kept(scale);
    std::array<std::uint16_t, std::max(scales[0].steps, scales[1].steps) * most_series> codes{};
    std::array<std::uint8_t, scales[scale_of_uses].steps> uses{};
    std::int64_t newest = 0;
    {
        const ZoneLock lock(pool_);

        newest = shared_->current[scale].index;
        std::copy_n(
            slot(scale, 0), static_cast<std::size_t>(count) * shared_->series, codes.begin());
        std::copy_n(&use(0), uses_of(shared_->series), uses.begin());
    }
    Steps steps{ shared_->series, 0, {}, {} };
    for (std::int64_t index = std::max<std::int64_t>(newest - count + 1, 0); index <= newest;
         ++index) {
        const auto* code = &codes[static_cast<std::size_t>(index % count) * steps.series];
        if (steps.values.empty()) {
            if (*code == unknown_code) {
                continue;
            }
            steps.start = index * scales[scale].step_s;
        }
        steps.values.push_back(decoded(code, steps.series));
        if (scale == scale_of_uses) {
            const auto with_use = static_cast<std::int64_t>(uses_of(steps.series));
            steps.highest_use.push_back(
                newest - index < with_use ? uses[static_cast<std::size_t>(index % with_use)]
                                          : unknown_use);
        }
    }
    return steps;
}

std::uint32_t History::highest_use(std::int64_t before) const noexcept
{
    const ZoneLock lock(pool_);

    const auto with_use = static_cast<std::int64_t>(uses_of(shared_->series));
    const std::int64_t newest = shared_->current[scale_of_uses].index;
    const std::int64_t first = std::max(newest - std::min(before, with_use - 1), std::int64_t{ 0 });
    std::uint32_t highest = 0;
    for (std::int64_t index = first; index <= newest; ++index) {
        highest = std::max<std::uint32_t>(highest, use(index) == unknown_use ? 0 : use(index));
    }
    return highest;
}

}  // namespace ratelimit

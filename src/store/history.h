#pragma once

#include "base/relaxed.h"
#include "nginx/ngx.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ratelimit {

/// What a zone passed and refused over time, in memory of fixed size: steps of 10 seconds for an
/// hour (half an hour in a small zone), and of 5 minutes for two days; the latter also have the
/// highest use of a key (in a small zone those of six hours). One worker a second adds what was
/// counted since the last time, so that requests do nothing for it.
///
/// Steps are those of the wall clock. If the clock is set ahead, or no worker ran for a while, the
/// steps between are unknown. If it is set back by at most a minute, the newest step goes on until
/// the clock has caught up; if by more, the steps that are ahead of the clock become unknown, and
/// the step of the new time goes on.
///
/// Layout: one Shared, and elsewhere in its owner's memory the values of all steps, each in 16
/// bits: exact up to 2047, above that within 0.05 %; then the highest uses, in 8 bits each. Public
/// functions but `due` take the zone's lock.
class History {
public:
    enum Series : std::uint8_t {
        passed,   // requests that were let in
        refused,  // requests that were refused
        // Only in a zone of `all_series_from` bytes or more:
        would_refuse,  // of those let in: a limit in shadow or in a dry run would have refused them
        undecided,     // of those let in: no decision could be had
    };
    static constexpr std::size_t most_series = 4;
    static constexpr std::size_t all_series_from = std::size_t{ 128 } * 1024;

    struct Scale {
        std::uint32_t step_s;
        std::uint32_t steps;  // that are kept
    };
    static constexpr std::array<Scale, 2> scales = { Scale{ 10, 360 }, Scale{ 300, 576 } };
    /// A zone of less than `all_series_from` bytes keeps half an hour of the first scale, and six
    /// hours of the highest uses, so that all of ZoneMemory::Shared takes two pages of it.
    static constexpr std::uint32_t short_steps = 180;
    static constexpr std::uint32_t short_uses = 72;

    static constexpr std::int64_t small_step_back_s = 60;
    static constexpr std::uint64_t unknown = UINT64_MAX;
    static constexpr std::uint8_t unknown_use = UINT8_MAX;

    /// Numbers of requests since the start of nginx, or of one step.
    using Values = std::array<std::uint64_t, most_series>;

    struct Steps {
        std::size_t series = 0;
        std::int64_t start = 0;      // of the first step, in seconds since the epoch
        std::vector<Values> values;  // the oldest known step first, the current one last
        /// Of each step, the highest use of a key in percent of its limit. Only of the second
        /// scale.
        std::vector<std::uint8_t> highest_use;
    };

    struct Shared {
        struct Current {
            std::int64_t index;  // time divided by the scale's step
            Values counted;
        };
        std::uint32_t series;
        std::int64_t rolled_s;  // time of the last roll, in seconds since the epoch
        Values totals;          // at that time
        std::array<Current, scales.size()> current;
        std::uint16_t* slots;  // of the first scale, then of the second; `series` of each step

        /// All steps are unknown.
        void init(std::size_t series_kept) noexcept;
    };

    /// How many series a zone of `zone` bytes keeps, and the size of their slots in bytes.
    static std::size_t series_for(std::size_t zone) noexcept;
    static std::size_t slots_size(std::size_t series) noexcept;

    History(ngx_slab_pool_t* pool, Shared& shared) noexcept : pool_(pool), shared_(&shared) {}

    /// Whether a second began since the last roll. Any worker may ask.
    bool due(time_t now) const noexcept
    {
        return relaxed(shared_->rolled_s) != std::int64_t{ now };
    }

    /// Adds what was counted since the last roll to the steps of `now` (seconds since the epoch).
    /// `highest_use`: since the last roll, in percent.
    void roll(time_t now, const Values& totals, std::uint32_t highest_use = 0) noexcept;

    /// `scale`: an index of `scales`.
    Steps read(std::size_t scale) const;

    /// The highest use of a key in the current step of the second scale and the `before` ones, in
    /// percent of its limit; 0 if nothing is known of them.
    std::uint32_t highest_use(std::int64_t before) const noexcept;

private:
    std::int64_t kept(std::size_t scale) const noexcept;
    std::uint16_t* slot(std::size_t scale, std::int64_t index) const noexcept;
    std::uint8_t& use(std::int64_t index) const noexcept;
    void forget(std::size_t scale, std::int64_t from, std::int64_t until) noexcept;
    void add(
        std::size_t scale, std::int64_t index, const Values& counted,
        std::uint32_t highest_use) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
};

}  // namespace ratelimit

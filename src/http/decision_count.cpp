#include "http/decision_count.h"

namespace ratelimit::http {

namespace {

struct CountRow {
    CountedAs counted_as;
    std::string_view name;
    /// By column_of. Leases only pass requests and the cache only refuses them, so both have the
    /// same column.
    std::array<std::string_view, ZoneCounters::sources> sources;
};

constexpr std::array<std::string_view, 3> passing = { name_of(Source::redis),
                                                      name_of(Source::lease),
                                                      name_of(Source::local) };
constexpr std::array<std::string_view, 3> refusing = { name_of(Source::redis),
                                                       name_of(Source::cache),
                                                       name_of(Source::local) };
constexpr std::array<std::string_view, 3> undecided = { "none", "", "" };

constexpr std::array<CountRow, ZoneCounters::outcomes> outcomes = {
    CountRow{ CountedAs::passed, "passed", passing },
    CountRow{ CountedAs::delayed, "delayed", passing },
    CountRow{ CountedAs::rejected, "rejected", refusing },
    CountRow{ CountedAs::delayed_dry_run, "delayed_dry_run", passing },
    CountRow{ CountedAs::rejected_dry_run, "rejected_dry_run", refusing },
    CountRow{ CountedAs::failed_open, "failed_open", undecided },
    CountRow{ CountedAs::failed_closed, "failed_closed", undecided },
    CountRow{ CountedAs::passed_shadow, "passed_shadow", passing },
    CountRow{ CountedAs::delayed_shadow, "delayed_shadow", passing },
    CountRow{ CountedAs::rejected_shadow, "rejected_shadow", refusing },
};

constexpr bool are_in_order() noexcept
{
    for (std::size_t index = 0; index < outcomes.size(); ++index) {
        if (static_cast<std::size_t>(outcomes[index].counted_as) != index) {
            return false;
        }
    }
    return true;
}

static_assert(are_in_order(), "CountedAs is an index of outcomes");

// A request's Result is counted as the outcome of the same name.
static_assert(static_cast<int>(CountedAs::passed) == static_cast<int>(Result::passed) - 1);
static_assert(
    static_cast<int>(CountedAs::failed_closed) == static_cast<int>(Result::failed_closed) - 1);
static_assert(static_cast<int>(CountedAs::failed_closed) == counts_of_requests - 1);

constexpr std::size_t named_sources() noexcept
{
    std::size_t count = 0;
    for (const CountRow& outcome : outcomes) {
        for (const std::string_view source : outcome.sources) {
            count += source.empty() ? 0 : 1;
        }
    }
    return count;
}

/// The sources that few outcomes have are counted as units.
struct CountedUnits {
    CountedAs counted_as;
    Source source;
    ZoneCounters::Units units;
};

constexpr std::array counted_units = {
    CountedUnits{ CountedAs::passed, Source::ahead, ZoneCounters::Units::ahead },
    CountedUnits{ CountedAs::passed_shadow, Source::ahead, ZoneCounters::Units::ahead_shadow },
    CountedUnits{ CountedAs::rejected, Source::overridden, ZoneCounters::Units::overridden },
    CountedUnits{ CountedAs::rejected_dry_run, Source::overridden,
                  ZoneCounters::Units::overridden_dry_run },
    CountedUnits{ CountedAs::rejected_shadow, Source::overridden,
                  ZoneCounters::Units::overridden_shadow },
};

static_assert(named_sources() + counted_units.size() == counts_of_zone);

std::size_t column_of(const AppliedLimit& limit) noexcept
{
    switch (limit.source) {
    case Source::redis:
        return 0;
    case Source::local:
    case Source::overridden:
        return 2;
    default:
        return 1;
    }
}

void count(ZoneCounters counters, CountedAs as, const AppliedLimit& limit) noexcept
{
    if (limit.source == Source::ahead || limit.source == Source::overridden) {
        for (const CountedUnits& row : counted_units) {
            if (row.counted_as == as && row.source == limit.source) {
                counters.add(row.units, 1);
                return;
            }
        }
    }
    counters.count(static_cast<std::size_t>(as), column_of(limit));
}

/// `limit` was decided. Empty: it is not counted.
std::optional<CountedAs> counted_as(const Decision& decision, const AppliedLimit& limit) noexcept
{
    const bool enforced = !decision.dry_run();
    if (!limit.state.granted) {
        if (limit.shadow) {
            return CountedAs::rejected_shadow;
        }
        return enforced ? CountedAs::rejected : CountedAs::rejected_dry_run;
    }
    if (!decision.passed()) {
        return std::nullopt;
    }
    const bool delayed = delay_of(limit).count() > 0;
    if (limit.shadow) {
        return delayed ? CountedAs::delayed_shadow : CountedAs::passed_shadow;
    }
    if (delayed) {
        return enforced ? CountedAs::delayed : CountedAs::delayed_dry_run;
    }
    return CountedAs::passed;
}

/// Counts how much of all of its limit the key has used after this decision, in percent, rounded
/// up: 100 if it was refused.
void count_use(ZoneCounters counters, const AppliedLimit& limit) noexcept
{
    constexpr std::int64_t parts = 5;  // less than one of them is near the limit
    constexpr std::int64_t all = 100;
    if (!limit.state.granted) {
        if (limit.source != Source::overridden) {
            counters.used(all);
        }
        return;
    }
    const std::int64_t most = limit.policy.whole();
    const std::int64_t left = limit.state.remaining + std::min(limit.policy.reserve, most);
    if (left * parts < most) {
        counters.add(ZoneCounters::Units::near_limit, 1);
    }
    const std::int64_t free = most > 0 ? all * std::clamp(left, std::int64_t{ 0 }, most) / most : 0;
    counters.used(static_cast<std::uint32_t>(all - free));
}

/// A zone's decisions with one of these outcomes.
std::uint64_t sum_of(const ZoneCounters& counters, std::initializer_list<CountedAs> all) noexcept
{
    std::uint64_t sum = 0;
    for (const CountedAs counted : all) {
        for (std::size_t column = 0; column < ZoneCounters::sources; ++column) {
            sum += counters.sum(static_cast<std::size_t>(counted), column);
        }
        for (const CountedUnits& row : counted_units) {
            sum += row.counted_as == counted ? counters.sum(row.units) : 0;
        }
    }
    return sum;
}

}  // namespace

void count_decision(const Decision& decision, ZoneCounters requests) noexcept
{
    if (decision.result() != Result::none) {
        requests.count(static_cast<std::size_t>(decision.result()) - 1, 0);
    }
    const bool closed = decision.result() == Result::failed_closed;
    const auto failed = closed ? CountedAs::failed_closed : CountedAs::failed_open;

    for (const AppliedLimit& limit : decision.limits()) {
        const ZoneMemory memory = limit.zone->memory();
        ZoneCounters counters = memory.counters();
        if (limit.decided) {
            if (!limit.state.granted) {
                const bool configured = limit.policy.override_record == 0;
                memory.top_refused().refuse(
                    limit.key, ngx_time(),
                    { .tried = limit.shadow || decision.dry_run(),
                      .rate = configured ? limit.policy.rate : Rate{} });
            }
            if (const auto as = counted_as(decision, limit)) {
                count(counters, *as, limit);
            }
            const bool counted = decision.counted(limit);
            if (counted && !limit.settled_later) {
                counters.add(ZoneCounters::Units::passed, limit.cost);
            }
            if (limit.cost > 0 && (counted || !limit.state.granted)) {
                count_use(counters, limit);
            }
        } else if (decision.undecided(limit) && !decision.outcome().refused) {
            // If another limit refused, this failure did not change the result.
            counters.count(static_cast<std::size_t>(failed), 0);
        }
    }
}

std::array<Count, counts_of_zone> counts_of(const ZoneMemory& memory) noexcept
{
    const ZoneCounters counters = memory.counters();
    std::array<Count, counts_of_zone> all{};
    std::size_t next = 0;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        for (std::size_t column = 0; column < ZoneCounters::sources; ++column) {
            if (const auto source = outcomes[i].sources[column]; !source.empty()) {
                all[next++] = { outcomes[i].name, source, counters.sum(i, column) };
            }
        }
        for (const CountedUnits& row : counted_units) {
            if (row.counted_as == outcomes[i].counted_as) {
                all[next++] = { outcomes[i].name, name_of(row.source), counters.sum(row.units) };
            }
        }
    }
    return all;
}

std::array<Count, counts_of_requests> counts_of_all(const ZoneMemory& requests) noexcept
{
    std::array<Count, counts_of_requests> all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = { outcomes[i].name, {}, requests.counters().sum(i, 0) };
    }
    return all;
}

History::Values history_totals(const ZoneMemory& memory) noexcept
{
    using enum CountedAs;
    const ZoneCounters counters = memory.counters();
    History::Values totals{};
    totals[History::would_refuse] = sum_of(counters, { rejected_dry_run, rejected_shadow });
    totals[History::undecided] = sum_of(counters, { failed_open });
    totals[History::passed] = totals[History::would_refuse] + totals[History::undecided]
        + sum_of(counters, { passed, delayed, delayed_dry_run, passed_shadow, delayed_shadow });
    totals[History::refused] = sum_of(counters, { rejected, failed_closed });
    return totals;
}

void roll_history(const ZoneMemory& memory) noexcept
{
    const std::uint32_t highest_use = memory.counters().take_highest_use();
    memory.history().roll(ngx_time(), history_totals(memory), highest_use);
}

void roll_history_each_second(const ZoneMemory& memory) noexcept
{
    if (memory.history().due(ngx_time())) {
        roll_history(memory);
    }
}

std::uint32_t highest_use_of_an_hour(const ZoneMemory& memory) noexcept
{
    roll_history_each_second(memory);
    return memory.history().highest_use(3600 / History::scales[1].step_s);
}

}  // namespace ratelimit::http

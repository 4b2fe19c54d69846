#include "http/decision_count.h"

namespace ratelimit::http {

namespace {

struct Outcome {
    CountedAs counted_as;
    std::string_view name;
    /// By the column that a source is counted in: what this node knew without asking is a lease for
    /// those that pass, and the cache for those that do not.
    std::array<std::string_view, ZoneCounters::sources> sources;
};

constexpr std::array<std::string_view, 3> letting_in = { "redis", "lease", "local" };
constexpr std::array<std::string_view, 3> refusing = { "redis", "cache", "local" };
constexpr std::array<std::string_view, 3> by_nobody = { "none", "", "" };

constexpr std::array<Outcome, ZoneCounters::outcomes> outcomes = {
    Outcome{ CountedAs::passed, "passed", letting_in },
    Outcome{ CountedAs::delayed, "delayed", letting_in },
    Outcome{ CountedAs::rejected, "rejected", refusing },
    Outcome{ CountedAs::delayed_dry_run, "delayed_dry_run", letting_in },
    Outcome{ CountedAs::rejected_dry_run, "rejected_dry_run", refusing },
    Outcome{ CountedAs::failed_open, "failed_open", by_nobody },
    Outcome{ CountedAs::failed_closed, "failed_closed", by_nobody },
    Outcome{ CountedAs::passed_shadow, "passed_shadow", letting_in },
    Outcome{ CountedAs::delayed_shadow, "delayed_shadow", letting_in },
    Outcome{ CountedAs::rejected_shadow, "rejected_shadow", refusing },
};

constexpr bool are_in_their_places() noexcept
{
    for (std::size_t place = 0; place < outcomes.size(); ++place) {
        if (static_cast<std::size_t>(outcomes[place].counted_as) != place) {
            return false;
        }
    }
    return true;
}

static_assert(are_in_their_places(), "they are counted by their places");

constexpr std::size_t named_sources() noexcept
{
    std::size_t count = 0;
    for (const Outcome& outcome : outcomes) {
        for (const std::string_view source : outcome.sources) {
            count += source.empty() ? 0 : 1;
        }
    }
    return count;
}

static_assert(named_sources() == counts_of_zone);

std::size_t column_of(const AppliedLimit& limit) noexcept
{
    switch (limit.source) {
    case Source::redis:
        return 0;
    case Source::lease:
        return limit.state.granted ? 1 : 0;  // what a shadow refuses of a batch, Redis has
    case Source::local:
        return 2;
    default:
        return 1;
    }
}

/// Of a limit that was decided; empty: it is not counted.
std::optional<CountedAs> counted_as(const Decision& decision, const AppliedLimit& limit) noexcept
{
    const bool enforced = !decision.dry_run();
    if (!limit.state.granted) {
        if (limit.shadow) {
            return CountedAs::rejected_shadow;
        }
        return enforced ? CountedAs::rejected : CountedAs::rejected_dry_run;
    }
    if (decision.outcome().refused || decision.result() == Result::failed_closed) {
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

}  // namespace

void count_decision(const Decision& decision) noexcept
{
    const bool closed = decision.result() == Result::failed_closed;
    const auto failed = closed ? CountedAs::failed_closed : CountedAs::failed_open;

    for (const AppliedLimit& limit : decision.limits()) {
        const ZoneMemory memory = limit.zone->memory();
        if (limit.decided) {
            if (!limit.state.granted) {
                memory.top_refused().refuse(limit.key, ngx_time());
            }
            if (const auto as = counted_as(decision, limit)) {
                memory.counters().count(static_cast<std::size_t>(*as), column_of(limit));
            }
        } else if (decision.undecided(limit) && !decision.outcome().refused) {
            // Another limit's refusal is not a failure that lets the request pass.
            memory.counters().count(static_cast<std::size_t>(failed), 0);
        }
    }
}

std::array<Count, counts_of_zone> counts_of(const ZoneConf& zone) noexcept
{
    const ZoneCounters counters = zone.zone.memory().counters();
    std::array<Count, counts_of_zone> all{};
    std::size_t next = 0;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        for (std::size_t column = 0; column < ZoneCounters::sources; ++column) {
            if (const auto source = outcomes[i].sources[column]; !source.empty()) {
                all[next++] = { outcomes[i].name, source, counters.sum(i, column) };
            }
        }
    }
    return all;
}

}  // namespace ratelimit::http

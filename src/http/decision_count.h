#pragma once

#include "conf/conf.h"
#include "zone/decision.h"

namespace ratelimit::http {

/// The outcome of one limit of one request, as the API and the metrics count it.
enum class CountedAs : std::uint8_t {
    passed,
    delayed,
    rejected,
    delayed_dry_run,
    rejected_dry_run,
    failed_open,
    failed_closed,
    passed_shadow,
    delayed_shadow,
    rejected_shadow,
};

/// Counts the request in `requests`, and the decision in the zones of its limits. Of a refused
/// request only the limits that refused it are counted. Shadow limits that could not be evaluated
/// are not counted.
void count_decision(const Decision& decision, ZoneCounters requests) noexcept;

/// The number of a zone's decisions with this outcome and source; "none": the limit was undecided.
struct Count {
    std::string_view outcome;
    std::string_view source;
    std::uint64_t count;
};
constexpr std::size_t counts_of_zone = 31;  // outcomes with each of their sources
std::array<Count, counts_of_zone> counts_of(const ZoneMemory& memory) noexcept;

/// The number of the node's requests with each Result, without a source.
constexpr std::size_t counts_of_requests = 7;
std::array<Count, counts_of_requests> counts_of_all(const ZoneMemory& requests) noexcept;

/// What the zone, or the node, passed and refused since nginx was started, by History::Series.
History::Values history_totals(const ZoneMemory& memory) noexcept;

/// Adds what was counted since the last call to the history.
void roll_history(const ZoneMemory& memory) noexcept;
/// The same, unless any worker did so in this second.
void roll_history_each_second(const ZoneMemory& memory) noexcept;

/// The highest use of a key within the last hour, in percent of its limit.
std::uint32_t highest_use_of_an_hour(const ZoneMemory& memory) noexcept;

}  // namespace ratelimit::http

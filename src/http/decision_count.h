#pragma once

#include "http/conf.h"
#include "zone/decision.h"

namespace ratelimit::http {

/// What becomes of a request by one limit, as the API and its metrics count it.
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

/// Counts the decision in the zones of its limits. One that let the request in is counted only if
/// no other refused it: a request that is refused is counted where it was.
void count_decision(const Decision& decision) noexcept;

/// How many decisions of a zone had this outcome, from this source: "none" where nobody decided.
struct Count {
    std::string_view outcome;
    std::string_view source;
    std::uint64_t count;
};
constexpr std::size_t counts_of_zone = 26;  // outcomes with each of their sources
std::array<Count, counts_of_zone> counts_of(const ZoneConf& zone) noexcept;

}  // namespace ratelimit::http

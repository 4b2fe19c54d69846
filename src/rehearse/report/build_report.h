#pragma once

#include "rehearse/report/report.h"
#include "rehearse/route/rehearsed.h"

#include <optional>
#include <vector>

namespace ratelimit::rehearse {

/// What one limit did. `busiest`: keys to list.
LimitReport limit_report(Rehearsed& subject, const LimitConf& limit, std::size_t busiest);
LimitReport limit_report(const Rehearsed& subject, const LimitReqConf& limit, std::size_t busiest);

/// Names the directives that the log does not tell enough for, with the number of their requests.
void warn_of_doubts(const Rehearsed& subject, std::vector<std::string>& out);

/// Adds other quotas to the reports of the first limits, by LimitConf::number: of --suggest, and
/// with `curves` those of a slider. A zone whose rate is a variable has none.
void add_quotas(
    Rehearsed& subject, std::optional<double> share, bool curves, std::vector<LimitReport>& limits);

/// What all limits did. `clients`: counts by the number of a configuration.
TotalReport total_report(
    const Rehearsed& subject, const KeyTally& clients, std::size_t number, std::size_t busiest);

}  // namespace ratelimit::rehearse

#pragma once

#include "rehearse/rehearsed.h"
#include "rehearse/report.h"

#include <optional>

namespace ratelimit::rehearse {

struct ReportOptions {
    bool one_server = false;      // --server
    std::optional<double> share;  // of --suggest
    bool curves = false;          // what other quotas would refuse
    std::size_t busiest = 10;     // keys to list
};

/// What one limit did. `number`: LimitConf::number.
LimitReport limit_report(Rehearsed& subject, std::size_t number, const ReportOptions& options);

/// What a `limit_req` did. `number`: LimitReqConf::number.
LimitReport limit_req_report(
    const Rehearsed& subject, std::size_t number, const ReportOptions& options);

/// What all limits did. `clients`: counts by configuration; null: the log has no addresses.
TotalReport total_report(
    Rehearsed& subject, const KeyTally* clients, std::size_t number, std::size_t busiest);

/// What the quotas of a limit would refuse, from the smallest on: about forty of them, up to the
/// first that refuses no key, and the configured one.
std::vector<CurvePoint> curve_of(Trace& trace, const Policy& policy);

}  // namespace ratelimit::rehearse

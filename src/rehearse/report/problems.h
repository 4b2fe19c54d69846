#pragma once

#include "rehearse/report/report.h"

#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// In which order the lines are decided.
struct Order {
    std::int64_t bound = 0;  // us: how far lines may be out of order
    bool arrival = false;    // by the beginning of the request, not by its end
    bool sorted = false;     // lines may be out of order by any time
};

/// Whether lines were skipped that would be used if the logs were sorted: more than one in a
/// thousand was behind, or more than one in a hundred was far ahead.
bool wants_sorting(const LineCounts& counts) noexcept;

/// Warns the user of lines that were not used.
void warn_of_skipped(const LineCounts& counts, const Order& order, std::vector<std::string>& out);

/// The conditions of a usable result.
struct Tolerance {
    double skipped = 0.01;   // the most of the lines that may be skipped
    bool unreached = false;  // a limit may have no request
};

/// Why the numbers of a report say nothing about the limits. `format`: the option that names the
/// format which broken lines have, or empty.
void add_problems(Report& report, const Tolerance& tolerance, const std::string& format);

}  // namespace ratelimit::rehearse

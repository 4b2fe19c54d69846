#pragma once

#include "rehearse/http_conf.h"
#include "rehearse/log_stream.h"
#include "rehearse/rehearsal.h"
#include "rehearse/route.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// What was rehearsed, for the reports.
struct LimitReport {
    std::string zone;
    std::string location;
    std::string policy;  // "sliding_window_counter, 100r/m"
    bool shadow = false;
    bool other_server = false;  // than that of --server
    std::int64_t limit = 0;     // the most that a key can have left; 0: the rate is a variable
    std::uint64_t requests = 0;
    std::uint64_t refused = 0;
    std::uint64_t delayed = 0;
    std::uint64_t malformed = 0;
    std::uint64_t keys = 0;
    std::uint64_t keys_refused = 0;
    bool exact = true;  // the numbers of keys are no estimates
    std::int64_t least_left = -1;
    std::vector<BusyKey> busiest;  // printable
    MinuteCount worst;             // no requests: there is none
    const std::vector<MinuteCount>* minutes = nullptr;

    struct Suggested {
        std::optional<Suggestion> quota;  // empty: no quota would do
        std::string rate;                 // empty: concurrency=
    };
    std::optional<Suggested> suggested;  // empty: not wanted, or the rate is a variable
};

struct Report {
    LineCounts counts;
    std::array<std::uint64_t, reached_kinds> reached{};  // requests, by Reached
    std::int64_t first_time = -1;                        // us since the epoch; -1: no line was good
    std::int64_t last_time = -1;
    double share = 0;                   // of --suggest
    std::vector<std::string> problems;  // why the numbers cannot be used; empty: they can
    std::vector<LimitReport> limits;
};

/// For people.
std::string text_report(const Report& report);
/// For programs: one line of JSON.
std::string json_report(const Report& report);
/// CSV: time,zone,location,requests,refused, for each minute with a request.
std::string timeline_csv(const Report& report);
/// The timeline as a picture.
std::string timeline_svg(const Report& report);

/// Writes a file. Throws InputError.
void write_file(const std::string& path, const std::string& text);

}  // namespace ratelimit::rehearse

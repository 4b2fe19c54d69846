#pragma once

#include "rehearse/count/suggestion.h"
#include "rehearse/log/log_stream.h"
#include "rehearse/route/rehearsed.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// What a limit would refuse with another quota of its zone.
struct CurvePoint {
    std::int64_t quota = 0;
    Refusals refusals;
};

/// A quota that would refuse the share of keys that --suggest gives.
struct SuggestedQuota {
    std::int64_t quota = 0;          // of the zone; 0: none would do
    std::uint64_t keys_refused = 0;  // by this limit
    std::string rate;                // empty: concurrency=
    bool alone = true;               // no other limit is of the zone
};

/// What was rehearsed, for the reports.
struct LimitReport {
    std::string zone;
    std::string location;
    std::string policy;         // "sliding_window_counter, 100r/m"
    bool of_nginx = false;      // a `limit_req`
    bool shadow = false;        // or a dry run of nginx's
    bool other_server = false;  // other than that of --server
    std::int64_t limit = 0;     // the most that a key can have left; 0: the rate is a variable
    const LimitResult* result = nullptr;
    KeyTally::Numbers keys;
    bool exact = true;                     // the numbers of keys are no estimates
    std::vector<BusyKey> busiest;          // printable
    std::vector<RefusedKey> refused_keys;  // the same

    std::optional<SuggestedQuota> suggested;  // empty: not wanted, or the rate is a variable
    Policy configured;
    std::vector<CurvePoint> curve;  // by quota; empty: the same
};

/// All limits of a configuration together.
struct TotalReport {
    const Rehearsed* subject = nullptr;
    KeyTally::Numbers clients;                // addresses
    bool exact = true;                        // the numbers of clients are no estimates
    std::vector<RefusedKey> refused_clients;  // printable

    const Totals& counts() const noexcept { return subject->totals(); }
    bool has_clients() const noexcept { return subject->facts().address != nullptr; }
    bool has_status() const noexcept { return subject->facts().status != nullptr; }
};

/// --against: what another configuration would change.
struct AgainstReport {
    std::string conf;                       // the other one, which is reported
    TotalReport before;                     // of the first one
    std::uint64_t newly = 0;                // clients that only the other one refuses
    std::uint64_t no_longer = 0;            // clients that only the first one refuses
    std::vector<RefusedKey> newly_refused;  // printable
    std::vector<RefusedKey> no_longer_refused;
};

struct Report {
    LineCounts counts;
    std::int64_t first_time = -1;  // us since the epoch; -1: no line was good
    std::int64_t last_time = -1;
    double share = 0;                   // of --suggest
    std::vector<std::string> problems;  // why the numbers cannot be used; empty: they can
    TotalReport total;
    std::optional<AgainstReport> against;
    std::vector<std::string> failures;  // the conditions of --fail-if that hold
    std::vector<LimitReport> limits;
};

inline double percent(std::uint64_t part, std::uint64_t whole) noexcept
{
    return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

/// Appends formatted text.
__attribute__((format(printf, 2, 3))) void add(std::string& out, const char* format, ...);

/// For people.
std::string text_report(const Report& report);
/// For programs: one line of JSON.
std::string json_report(const Report& report);
/// CSV: time,zone,location,requests,refused, for each minute with a request.
std::string timeline_csv(const Report& report);
/// The timeline as a picture.
std::string timeline_svg(const Report& report);

/// A page on which the quota of each limit is a slider. It is complete in itself.
std::string html_report(const Report& report);

/// Writes a file. Throws InputError.
void write_file(const std::string& path, const std::string& text);

}  // namespace ratelimit::rehearse

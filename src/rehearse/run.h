#pragma once

#include "rehearse/report/problems.h"
#include "rehearse/report/verdict.h"
#include "rehearse/route/rehearsed.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// The settings of the command line.
struct Settings {
    std::string conf;
    std::vector<std::string> logs;
    std::string format;  // a name, or a format with variables; empty: combined, or JSON by itself
    std::string log_format;  // text, json or empty: by the first lines
    std::string server;
    std::optional<std::int64_t> reorder;  // us; empty: 2 s, or 1 min with concurrency=
    bool arrival = false;                 // always with concurrency=
    std::string decisions;                // a file for every decision; empty: none
    bool timeline = false;                // minutes are kept
    std::optional<double> share;          // of --suggest
    bool curves = false;                  // other quotas, for --html
    std::vector<FailIf> fail_if;
    std::string against;    // another configuration; empty: none
    std::string conf_text;  // in place of `conf`; empty: none
    std::size_t busiest = 10;
    Tolerance tolerance;
};

/// A file of them that cannot be read again, such as a pipe; empty: there is none.
std::string read_once(const Settings& settings);

/// Called for each record that is read. False: stop, with what is known so far.
using Watch = std::function<bool(const LineCounts& counts, const LogStreams& streams)>;

/// The results and the configurations they refer to: keep it while the report is used.
struct Run {
    std::unique_ptr<LogFormat> format;
    std::vector<std::unique_ptr<Rehearsed>> rehearsed;  // the last one is reported
    KeyTally clients{ 2 };                              // counts by the index of `rehearsed`
    Order order;
    Report report;
    std::vector<std::string> warnings;
    bool interrupted = false;  // by Watch

    Rehearsed& subject() const noexcept { return *rehearsed.back(); }
};

/// Reads the configurations and the logs, and decides every request. Throws InputError.
std::unique_ptr<Run> rehearse(const Settings& settings, const Watch& watch);

}  // namespace ratelimit::rehearse

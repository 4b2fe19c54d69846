#pragma once

#include "rehearse/problems.h"
#include "rehearse/report.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// What the command line says.
struct Settings {
    std::string conf;
    std::vector<std::string> logs;
    std::string format;  // a name, or a format with variables; empty: combined, or JSON by itself
    std::string log_format;  // text, json or empty: by the first line
    std::string server;
    std::optional<std::int64_t> reorder;  // us; empty: 2 s, or 1 min with concurrency=
    bool arrival = false;                 // always with concurrency=
    std::string decisions;                // a file for every decision; empty: none
    bool timeline = false;                // minutes are kept
    std::optional<double> share;          // of --suggest
    std::size_t busiest = 10;
    Tolerance tolerance;
};

/// What is shown while the logs are read.
struct Progress {
    std::uint64_t lines = 0;
    std::uint64_t bytes = 0;
    std::uint64_t all_bytes = 0;  // 0: not known
};

/// The results, and what they are of: keep it while the report is used.
struct Run {
    std::unique_ptr<HttpConf> conf;
    std::unique_ptr<Rehearsal> rehearsal;
    Report report;
    const ServerConf* server = nullptr;  // of all requests; null: they are of several
    std::vector<std::string> warnings;
};

/// Reads the configuration and the logs, and decides every request. Throws InputError.
/// `progress` is called now and then.
std::unique_ptr<Run> rehearse(
    const Settings& settings, const std::function<void(const Progress&)>& progress);

}  // namespace ratelimit::rehearse

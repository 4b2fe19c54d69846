#pragma once

#include "rehearse/count/bounds.h"
#include "rehearse/count/refused_keys.h"
#include "rehearse/count/rehearsal.h"
#include "rehearse/route/decision_list.h"
#include "rehearse/route/site.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// Reads a configuration. What is missing or unknown is named in `warnings`. Throws InputError.
std::unique_ptr<HttpConf> read_site_conf(
    const std::string& path, std::vector<std::string>& warnings);

/// All limits of a configuration together, but shadows refuse nothing. The keys are the clients.
struct Totals : Outcome {
    std::array<std::uint64_t, reached_kinds> reached{};  // requests, by Reached
};

/// One configuration, and what its limits do to the requests of a log.
class Rehearsed {
public:
    /// Throws InputError.
    Rehearsed(
        std::unique_ptr<HttpConf> conf, LogFormat& format, const std::string& server,
        const Rehearsal::Options& options);

    using Result = LimitReqs::Result;
    Result decide(const Record& record);

    /// Writes every decision. Call before LogFormat::begin.
    void list_decisions(const std::string& path) { list_.emplace(path, variables_); }
    /// Call after the last request.
    void finish();

    const HttpConf& conf() const noexcept { return *conf_; }
    const Site& site() const noexcept { return site_; }
    const Totals& totals() const noexcept { return totals_; }
    /// Requests whose limits the log does not tell enough of.
    std::uint64_t doubtful() const noexcept { return doubtful_; }
    /// Null: the log tells enough of all.
    const Bounds* bounds() const noexcept { return bounds_ ? &*bounds_ : nullptr; }
    /// Requests that went a way which the configuration does not show.
    struct Unexplained {
        std::uint64_t requests = 0;
        std::string first;  // the path and status of the first request
    };
    const Unexplained& unexplained() const noexcept { return unexplained_; }
    /// The number of doubtful requests by directive; one request can have several.
    const std::map<const Directive*, std::uint64_t>& doubts() const noexcept { return doubts_; }
    const RequestFacts& facts() const noexcept { return facts_; }
    Rehearsal& rehearsal() noexcept { return rehearsal_; }
    const LimitReqs& limit_reqs() const noexcept { return limit_reqs_; }
    /// Of the last request; empty: not in the log.
    std::string_view address() { return value_of(facts_.address, values_); }

private:
    void begin_bounds();
    void note_bounds(const Route& likely, const Site::Ways& ways);
    void follow_all(const std::vector<Values::Answers>& ways);
    void add_course(const Route& route, std::span<const AskedLimit> asked);

    std::unique_ptr<HttpConf> conf_;
    Variables variables_;
    RequestFacts facts_;
    Site site_;
    Rehearsal rehearsal_;
    LimitReqs limit_reqs_;
    Values values_;
    Totals totals_;
    std::optional<Bounds> bounds_;
    std::vector<Course> courses_;  // of the last request
    std::uint64_t doubtful_ = 0;
    Unexplained unexplained_;
    std::map<const Directive*, std::uint64_t> doubts_;
    std::optional<DecisionList> list_;
};

}  // namespace ratelimit::rehearse

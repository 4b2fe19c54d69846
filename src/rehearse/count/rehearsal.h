#pragma once

#include "rehearse/count/decider.h"
#include "rehearse/count/minutes.h"
#include "rehearse/count/refused_keys.h"
#include "rehearse/count/trace.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// What one limit did.
struct LimitResult : Outcome {
    std::uint64_t delayed = 0;
    std::uint64_t malformed = 0;   // requests whose rate is malformed
    std::int64_t least_left = -1;  // the fewest requests that a key had left; -1: none was counted
    Minutes minutes;

    explicit LimitResult(bool keep_minutes) : minutes(keep_minutes) {}

    void note(std::int64_t now, bool is_refused)
    {
        ++requests;
        refused += is_refused ? 1 : 0;
        minutes.add(now, is_refused);
    }
};

/// Evaluates the limits of requests, decides them, and notes what each limit did.
class Rehearsal {
public:
    struct Options {
        std::size_t busiest = 10;  // keys that are reported
        bool timeline = false;     // all minutes are kept
        bool trace = false;        // the requests are kept, for other quotas
    };

    Rehearsal(
        const std::vector<ZoneConf>& zones, const std::vector<LimitConf>& limits,
        const Options& options, const RequestFacts& facts);

    /// Returns whether the request passes. `now`: microseconds since the epoch, not before that of
    /// the last call.
    bool decide(const Plan& plan, Values& values, std::int64_t now);

    /// Whether a limit applied to the last request: one whose key is empty does not.
    bool any_applied() const noexcept { return !asked_.empty(); }

    /// The limits of a plan for the last request, without deciding it again. Valid until the next
    /// call.
    std::span<const AskedLimit> asked_by(const Plan& plan, Values& values);
    /// The limits of the last plan.
    std::span<const AskedLimit> asked() const noexcept { return asked_; }

    /// By LimitConf::number.
    const std::vector<LimitResult>& results() const noexcept { return results_; }
    /// Knows the keys.
    const Decider& decider() const noexcept { return decider_; }
    /// Null: the requests are not kept.
    Trace* trace() noexcept { return trace_ ? &*trace_ : nullptr; }

private:
    void evaluate(const Plan& plan, Values& values);
    bool evaluate(const PlannedLimit& limit, Values& values, std::string& key, AskedLimit& out);
    bool evaluate_rate(const PlannedLimit& limit, Values& values, AskedLimit& out);
    void note(
        const PlannedLimit& planned, const Decider::Decided& limit, Values& values,
        std::int64_t now);

    const RequestFacts& facts_;
    Decider decider_;
    std::vector<LimitResult> results_;
    std::vector<AskedLimit> asked_;             // by the last request
    std::vector<const PlannedLimit*> planned_;  // the same
    std::vector<std::string> keys_;             // their keys, and unused texts behind them
    std::optional<Trace> trace_;
    std::string text_;    // of a key, a rate, a cost
    bool again_ = false;  // the request is noted already
};

}  // namespace ratelimit::rehearse

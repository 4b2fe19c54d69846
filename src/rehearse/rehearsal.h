#pragma once

#include "rehearse/key_table.h"
#include "rehearse/minutes.h"
#include "rehearse/plan.h"
#include "rehearse/refused_keys.h"
#include "rehearse/suggestion.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// What a limit did.
struct LimitResult {
    std::uint64_t requests = 0;  // that the limit applied to
    std::uint64_t refused = 0;   // of these, by this limit
    std::uint64_t delayed = 0;
    std::uint64_t malformed = 0;   // requests whose rate is malformed
    std::int64_t least_left = -1;  // the fewest requests that a key had left; -1: none was counted
    Minutes minutes;
    std::uint64_t succeeded = 0;  // of the refused ones, with 2xx at that time
    RefusedKeys refused_keys;
    std::unique_ptr<Trace> trace;  // if a quota is to be suggested
};

/// Decides requests as the module does without Redis: by the checks of src/limit, and with
/// concurrency= by what the requests hold that have not ended.
class Rehearsal {
public:
    struct Options {
        std::size_t busiest = 10;  // keys that are reported
        bool timeline = false;     // all minutes are kept
        bool traces = false;       // for suggestions
    };

    /// `evidence`: of refused requests; null: none is kept.
    Rehearsal(
        const std::vector<ZoneConf>& zones, const std::vector<LimitTitle>& titles,
        const Options& options, const Evidence* evidence = nullptr);

    /// Returns whether the request passes. `now`: microseconds since the epoch, not before that of
    /// the last call.
    bool decide(const Plan& plan, Values& values, std::int64_t now);

    /// Whether a limit applied to the last request: one whose key is empty does not.
    bool any_applied() const noexcept { return !applied_.empty(); }

    /// Call after the last request.
    void finish();

    /// By LimitConf::number.
    const std::vector<LimitResult>& results() const noexcept { return results_; }
    std::vector<LimitResult>& results() noexcept { return results_; }
    KeyTally::Numbers numbers(std::size_t number) const;
    std::vector<BusyKey> busiest(std::size_t number) const;
    /// Whether the numbers of keys are exact, not estimates.
    bool exact(std::size_t number) const;

private:
    struct Applied {
        const PlannedLimit* planned;
        KeyTable::Key* key;
        KeyTable::KeyRecord* record;
        Policy policy;
        std::int64_t cost;
        bool malformed;
        std::optional<KeyCheck> check;  // empty: the rate is malformed
        microseconds blocked;           // what is left of the key's block
        Verdict verdict;
    };

    void evaluate(const Plan& plan, Values& values, std::int64_t now);
    bool evaluate(const PlannedLimit& limit, Values& values, std::int64_t now, Applied& out);
    bool evaluate_rate(const PlannedLimit& limit, Values& values, std::int64_t now, Applied& out);
    std::string_view counted_key(std::size_t zone, std::string_view key);
    bool check(Applied& limit, std::int64_t now, std::int64_t end);
    static bool grants(const Applied& limit) noexcept;
    void commit(Applied& limit, std::int64_t now, bool take, bool refused);
    void settle(Applied& limit, Values& values, std::int64_t now);
    void note(const Applied& limit, Values& values, std::int64_t now, bool refused);
    void note_refusal(const Applied& limit, Values& values, std::int64_t now);

    const Evidence* evidence_;
    struct ZoneKeys {
        bool hash_key;
        KeyTable keys;
    };
    std::vector<ZoneKeys> zones_;
    std::vector<std::size_t> zone_of_;   // by LimitConf::number
    std::vector<std::size_t> place_of_;  // index among the limits of the zone
    std::vector<LimitResult> results_;
    std::vector<Applied> applied_;
    std::string key_text_;
    std::string rate_text_;
    std::string cost_text_;
    std::string hash_text_;
};

}  // namespace ratelimit::rehearse

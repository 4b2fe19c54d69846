#pragma once

#include "rehearse/conf/limit_req_conf.h"
#include "rehearse/count/rehearsal.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ratelimit::rehearse {

/// A `limit_req` of a location, compiled.
struct PlannedLimitReq {
    const LimitReqConf* conf;
    Expression key;
};

/// The limits that apply to a request, in their order.
using LimitReqPlan = std::vector<PlannedLimitReq>;

/// The keys of a `limit_req_zone`: leaky buckets in milliseconds and thousandths of a request, by
/// ngx_http_limit_req_lookup and _account of nginx 1.22's ngx_http_limit_req_module.c. A key is
/// forgotten once it is like a new one. nginx may forget it up to a request earlier, if it was idle
/// for a minute; the zone's memory never ends here.
class LimitReqBuckets {
public:
    explicit LimitReqBuckets(std::int64_t rate) : rate_(rate) {}

    /// Finds or adds a key. Returns how many thousandths it has beyond its rate with one more
    /// request. `now` in milliseconds.
    std::int64_t look_up(std::string_view key, std::int64_t now);
    /// Counts a request of the key that was looked up last; `burst`: up to this excess, unless it
    /// is greater already.
    void take(std::int64_t now, std::int64_t burst);
    /// How long a request waits that is counted. In milliseconds.
    std::int64_t delay(std::int64_t excess, std::int64_t undelayed) const noexcept;

private:
    struct Bucket {
        std::int64_t excess = 0;
        std::int64_t last = 0;  // ms
    };

    std::int64_t drained(const Bucket& bucket, std::int64_t now) const noexcept;
    std::int64_t with_one_more(const Bucket& bucket, std::int64_t now) const noexcept;

    std::int64_t rate_;
    std::unordered_map<std::string, Bucket> buckets_;
    std::size_t most_ = 0;    // at this size, keys that are like new ones are forgotten
    Bucket* last_ = nullptr;  // looked up
};

/// What a `limit_req` did.
struct LimitReqResult : LimitResult {
    explicit LimitReqResult(const Rehearsal::Options& options)
        : LimitResult(options.timeline), busiest(options.busiest)
    {
    }

    KeyTally keys{ 1 };
    FirstKeys<BusyKey> busiest;
};

/// Decides requests as nginx's limit_req.
class LimitReqs {
public:
    LimitReqs(
        const std::vector<LimitReqZone>& zones, std::size_t limits,
        const Rehearsal::Options& options, const RequestFacts& facts);

    enum class Result : std::uint8_t { unlimited, passes, refused };
    /// `refused` also with a dry run. `now` in microseconds, not before that of the last call.
    Result decide(const LimitReqPlan& plan, Values& values, std::int64_t now);

    /// From now on, `follow` is called for each course of a request, before count_followed.
    void begin_bounds() { least_ = most_ = zones_; }
    /// The same for one course of a request, with the bounds of the counts. Where they disagree,
    /// the values decide. Nothing is noted.
    Result follow(const LimitReqPlan& plan, Values& values, std::int64_t now);
    /// Counts the request after its last course.
    void count_followed(std::uint64_t courses, std::int64_t now);

    /// By LimitReqConf::number.
    const std::vector<LimitReqResult>& results() const noexcept { return results_; }

private:
    void note(
        const LimitReqConf& limit, std::string_view key, Values& values, std::int64_t now,
        bool refused);

    const RequestFacts& facts_;
    struct Taken {
        std::size_t zone;
        std::string key;
        std::int64_t burst;
    };

    std::vector<LimitReqBuckets> zones_;
    // As Bounds of the module's limits.
    std::vector<LimitReqBuckets> least_;
    std::vector<LimitReqBuckets> most_;
    std::vector<Taken> taken_;  // in the courses of a request
    std::vector<LimitReqResult> results_;
    std::vector<std::string> keys_;  // of the plan's limits, for one request
};

}  // namespace ratelimit::rehearse

#include "rehearse/count/limit_req.h"

#include "limit/wide.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace ratelimit::rehearse {

namespace {

constexpr std::int64_t one_request = 1000;
constexpr std::int64_t second_ms = 1000;

/// Empty: the limit does not apply.
void read_key(const PlannedLimitReq& limit, Values& values, std::string& out)
{
    constexpr std::size_t longest_key = 65535;
    std::string own;
    out = limit.key.value(values, own);
    if (out.size() > longest_key) {
        out.clear();
    }
}

}  // namespace

/// What is left of the excess; it is below 0 if the bucket has been empty for a while.
std::int64_t LimitReqBuckets::drained(const Bucket& bucket, std::int64_t now) const noexcept
{
    const Wide drained = Wide{ rate_ } * std::max<std::int64_t>(now - bucket.last, 0) / second_ms;
    return static_cast<std::int64_t>(
        std::max<Wide>(bucket.excess - drained, std::numeric_limits<std::int64_t>::min() / 2));
}

/// The first request of a key is in no excess.
std::int64_t LimitReqBuckets::with_one_more(const Bucket& bucket, std::int64_t now) const noexcept
{
    return bucket.last == 0 ? 0 : std::max<std::int64_t>(drained(bucket, now) + one_request, 0);
}

std::int64_t LimitReqBuckets::look_up(std::string_view key, std::int64_t now)
{
    constexpr std::size_t fewest = 1024;
    if (buckets_.size() >= most_) {
        std::erase_if(
            buckets_, [&](const auto& one) { return drained(one.second, now) <= -one_request; });
        most_ = std::max(fewest, 2 * buckets_.size());
    }
    last_ = &buckets_[std::string(key)];
    return with_one_more(*last_, now);
}

void LimitReqBuckets::take(std::int64_t now, std::int64_t burst)
{
    const std::int64_t most = std::max(drained(*last_, now), burst);
    last_->excess = std::min(with_one_more(*last_, now), most);
    last_->last = now;
}

std::int64_t LimitReqBuckets::delay(std::int64_t excess, std::int64_t undelayed) const noexcept
{
    return excess <= undelayed ? 0 : (excess - undelayed) * second_ms / rate_;
}

LimitReqs::LimitReqs(
    const std::vector<LimitReqZone>& zones, std::size_t limits, const Rehearsal::Options& options,
    const RequestFacts& facts)
    : facts_(facts), results_(limits, LimitReqResult(options))
{
    for (const LimitReqZone& zone : zones) {
        zones_.emplace_back(zone.rate);
    }
}

LimitReqs::Result LimitReqs::decide(const LimitReqPlan& plan, Values& values, std::int64_t now)
{
    const std::int64_t now_ms = now / 1000;
    keys_.resize(std::max(keys_.size(), plan.size()));
    Result result = Result::unlimited;
    std::int64_t longest_delay = 0;
    std::size_t slowest = 0;
    // The first limit that refuses ends it; those after it are not asked.
    for (std::size_t i = 0; i < plan.size() && result != Result::refused; ++i) {
        const LimitReqConf& limit = *plan[i].conf;
        read_key(plan[i], values, keys_[i]);
        if (keys_[i].empty()) {
            continue;
        }
        LimitReqBuckets& zone = zones_[limit.zone];
        const std::int64_t excess = zone.look_up(keys_[i], now_ms);
        result = excess > limit.burst ? Result::refused : Result::passes;
        note(limit, keys_[i], values, now, result == Result::refused);
        const std::int64_t delay = zone.delay(excess, limit.delay);
        if (delay > longest_delay) {
            longest_delay = delay;
            slowest = limit.number;
        }
    }
    if (result != Result::passes) {
        return result;
    }
    for (std::size_t i = 0; i < plan.size(); ++i) {
        if (!keys_[i].empty()) {
            const LimitReqConf& limit = *plan[i].conf;
            zones_[limit.zone].take(now_ms, limit.burst);
        }
    }
    results_[slowest].delayed += longest_delay > 0 ? 1 : 0;
    return result;
}

LimitReqs::Result LimitReqs::follow(const LimitReqPlan& plan, Values& values, std::int64_t now)
{
    const std::int64_t now_ms = now / 1000;
    const std::size_t first = taken_.size();
    for (const PlannedLimitReq& planned : plan) {
        const LimitReqConf& limit = *planned.conf;
        std::string key;
        read_key(planned, values, key);
        if (key.empty()) {
            continue;
        }
        const bool may_pass = least_[limit.zone].look_up(key, now_ms) <= limit.burst;
        const bool must_pass = most_[limit.zone].look_up(key, now_ms) <= limit.burst;
        const std::string question = "limit_req " + std::to_string(limit.number);
        if (!may_pass || (!must_pass && values.in_doubt(nullptr, question, false))) {
            taken_.resize(first);
            return Result::refused;
        }
        taken_.push_back({ limit.zone, std::move(key), limit.burst });
    }
    return taken_.size() == first ? Result::unlimited : Result::passes;
}

/// A request counts once for a key. It surely does if it does in each course.
void LimitReqs::count_followed(std::uint64_t courses, std::int64_t now)
{
    const std::int64_t now_ms = now / 1000;
    while (!taken_.empty()) {
        const Taken one = std::move(taken_.back());
        taken_.pop_back();
        const auto others =
            std::remove_if(taken_.begin(), taken_.end(), [&one](const Taken& other) {
                return other.zone == one.zone && other.key == one.key;
            });
        const auto times = static_cast<std::uint64_t>(taken_.end() - others) + 1;
        std::int64_t burst = one.burst;
        for (auto other = others; other != taken_.end(); ++other) {
            burst = std::max(burst, other->burst);
        }
        taken_.erase(others, taken_.end());
        most_[one.zone].look_up(one.key, now_ms);
        most_[one.zone].take(now_ms, burst);
        if (times == courses) {
            least_[one.zone].look_up(one.key, now_ms);
            least_[one.zone].take(now_ms, burst);
        }
    }
}

void LimitReqs::note(
    const LimitReqConf& limit, std::string_view key, Values& values, std::int64_t now, bool refused)
{
    LimitReqResult& result = results_[limit.number];
    result.note(now, refused);
    if (KeyCount* count = result.keys.find_or_add(std::hash<std::string_view>{}(key))) {
        ++count->requests;
        count->refused += refused ? 1 : 0;
        result.busiest.offer({ std::string(key), *count });
    }
    if (refused) {
        result.note_refusal(key, now, values, facts_);
    }
}

}  // namespace ratelimit::rehearse

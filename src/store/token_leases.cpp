#include "store/token_leases.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace ratelimit {

namespace {

constexpr microseconds period{ std::chrono::seconds{ 1 } };

/// Whether the clock was set back after `time`. If `time` is less than a period ahead, another
/// worker noted it while this one, whose `now` is older, waited for the zone's lock.
bool was_set_back(microseconds time, microseconds now) noexcept
{
    return time - now >= period;
}

}  // namespace

/// The tokens of one call.
struct TokenLeases::Part : TokenSource {
    std::int64_t left;  // units: requests times cost

    bool over(microseconds now) const noexcept { return expires <= now || was_set_back(sent, now); }
    bool half_over(microseconds now) const noexcept { return now - sent >= expires - now; }
    void lapse(microseconds now) noexcept { left = over(now) ? 0 : left; }
};

/// One block. The tokens of older calls are spent first.
struct TokenLeases::Lease {
    RunReply answer;  // to the newest call
    Part newest;
    Part older;
    microseconds renewal_ends;  // when the renewal that is under way has surely ended

    std::int64_t left() const noexcept { return newest.left + older.left; }
    bool over(microseconds now) const noexcept { return newest.over(now) && older.over(now); }
    void lapse(microseconds now) noexcept
    {
        newest.lapse(now);
        older.lapse(now);
    }
    bool in_renewal(microseconds now) const noexcept { return now < renewal_ends; }
    /// A part with this many units, the older one if possible. Null: neither has that many.
    Part* with(std::int64_t units) noexcept
    {
        return older.left >= units ? &older : newest.left >= units ? &newest : nullptr;
    }
    void add(const RunReply& another, const Part& part) noexcept;
};

struct TokenLeases::Entry : KeyedNode {
    std::uint64_t policy_hash;
    Lease* lease;  // null: none
    microseconds period_began;
    std::uint32_t count;     // requests in this period
    std::uint32_t previous;  // requests in the previous period

    void release(SharedBlocks& blocks) noexcept
    {
        if (lease != nullptr) {
            blocks.free(std::exchange(lease, nullptr));
        }
    }
    void count_request(microseconds now) noexcept;
    std::int64_t requests_in_a_period(microseconds now) const noexcept;
    std::int64_t worth_renewing(
        const KeyedRequest& request, const Policy& policy, std::int64_t most,
        microseconds now) const noexcept;
};

void TokenLeases::Entry::count_request(microseconds now) noexcept
{
    const microseconds elapsed = now - period_began;
    if (elapsed >= 2 * period || was_set_back(period_began, now)) {
        previous = 0;
        count = 0;
        period_began = now;
    } else if (elapsed >= period) {
        previous = count;
        count = 0;
        period_began += period;
    }
    count += count < std::numeric_limits<std::uint32_t>::max() ? 1 : 0;
}

/// Requests in the last second, assuming that those of the previous period were evenly spread.
std::int64_t TokenLeases::Entry::requests_in_a_period(microseconds now) const noexcept
{
    return count + previous * (period - (now - period_began)).count() / period.count();
}

/// With fixed_window a lease ends with its window, and tokens of the next one cannot be had before.
std::int64_t TokenLeases::Entry::worth_renewing(
    const KeyedRequest& request, const Policy& policy, std::int64_t most,
    microseconds now) const noexcept
{
    const std::int64_t wanted = std::min(most, requests_in_a_period(now) - 1);
    const std::int64_t left = lease->left() / request.cost;
    const bool ages = policy.algorithm != Algorithm::fixed_window;
    const bool due = left <= wanted / 2 || (ages && lease->newest.half_over(now));
    if (!due || lease->in_renewal(now)) {
        return 0;
    }
    return std::max<std::int64_t>(std::min(std::max(wanted - left, wanted / 2), most - left), 0);
}

/// Only two parts are kept, so the tokens of the earlier calls become one part, which expires when
/// the first of them does. (Another worker may have sent this call before those.)
void TokenLeases::Lease::add(const RunReply& another, const Part& part) noexcept
{
    older = older.left == 0 || older.expires <= part.sent
        ? newest
        : Part{ { newest.sent, std::min(older.expires, newest.expires) }, left() };
    newest = part;
    answer = another;
    renewal_ends = microseconds{ 0 };
}

TokenLeases::Entry* TokenLeases::find(const KeyedRequest& request) const noexcept
{
    auto* entry = table_.find(request.key, request.tag());
    return entry != nullptr && entry->policy_hash == request.policy_hash ? entry : nullptr;
}

/// The entry becomes the most recently used one. Null: out of memory.
TokenLeases::Entry* TokenLeases::find_or_add(const KeyedRequest& request, microseconds now) noexcept
{
    Entry* entry = table_.find(request.key, request.tag());
    if (entry != nullptr && entry->policy_hash == request.policy_hash) {
        table_.use(*entry);
        return entry;
    }
    if (entry != nullptr) {
        table_.remove(*entry);
    }
    entry = table_.insert(request.key, request.tag());
    if (entry != nullptr) {
        entry->policy_hash = request.policy_hash;
        entry->lease = nullptr;
        entry->period_began = now;
        entry->count = 0;
        entry->previous = 0;
    }
    return entry;
}

TokenLeases::Answer TokenLeases::spend(
    const KeyedRequest& request, const Policy& policy, std::int64_t most, microseconds now) noexcept
{
    const ZoneLock lock(table_.pool());

    forget_expired(now);
    Entry* entry = find_or_add(request, now);
    if (entry == nullptr) {
        return {};
    }
    entry->count_request(now);
    Lease* lease = entry->lease;
    if (lease != nullptr && lease->over(now) && !lease->in_renewal(now)) {
        entry->release(table_.blocks());
        lease = nullptr;
    }
    Part* part = nullptr;
    if (lease != nullptr) {
        lease->lapse(now);
        part = lease->with(request.cost);
    }
    if (part == nullptr) {
        const bool in_renewal = lease != nullptr && lease->in_renewal(now);
        const std::int64_t others = std::min(most, entry->requests_in_a_period(now) - 1);
        return { std::nullopt, in_renewal ? 0 : others, {} };
    }
    part->left -= request.cost;
    Verdict state = state_before(lease->answer, policy, lease->left());
    const microseconds passed = std::max(now - lease->newest.sent, microseconds{ 0 });
    state.reset = std::max(state.reset - passed, microseconds{ 0 });
    return { state, entry->worth_renewing(request, policy, most, now), *part };
}

bool TokenLeases::begin_renewal(
    const KeyedRequest& request, microseconds now, microseconds ends) noexcept
{
    const ZoneLock lock(table_.pool());

    const Entry* entry = find(request);
    if (entry == nullptr || entry->lease == nullptr || entry->lease->in_renewal(now)) {
        return false;
    }
    entry->lease->renewal_ends = ends;
    return true;
}

void TokenLeases::end_renewal(const KeyedRequest& request) noexcept
{
    const ZoneLock lock(table_.pool());

    const Entry* entry = find(request);
    if (entry != nullptr && entry->lease != nullptr) {
        entry->lease->renewal_ends = microseconds{ 0 };
    }
}

void TokenLeases::refund(const KeyedRequest& request, const TokenSource& source) noexcept
{
    const ZoneLock lock(table_.pool());

    Entry* entry = find(request);
    if (entry == nullptr) {
        return;
    }
    entry->count -= entry->count > 0 ? 1 : 0;  // refused requests do not make a key busy
    if (entry->lease == nullptr || source.expires.count() == 0) {
        return;
    }
    if (entry->lease->newest.sent == source.sent) {
        entry->lease->newest.left += request.cost;
        return;
    }
    Part& older = entry->lease->older;
    older = older.left == 0 ? Part{ source, request.cost }
                            : Part{ { older.sent, std::min(older.expires, source.expires) },
                                    older.left + request.cost };
}

void TokenLeases::add(
    const KeyedRequest& request, const Policy& policy, const RunReply& answer, std::int64_t left,
    microseconds sent) noexcept
{
    const ZoneLock lock(table_.pool());

    Entry* entry = find_or_add(request, sent);
    if (entry == nullptr) {
        return;
    }
    const Part part{ { sent, sent + lease_life(answer, policy.algorithm) }, left * request.cost };
    if (entry->lease != nullptr) {
        entry->lease->add(answer, part);
        return;
    }
    table_.pin(*entry);
    void* memory = table_.blocks().allocate();
    table_.use(*entry);
    if (memory != nullptr) {
        static_assert(sizeof(Lease) <= SharedBlocks::size);
        entry->lease = new (memory) Lease{ answer, part, {}, {} };
    }
}

/// Removes entries whose lease has expired, if their counts are too old to tell how busy the key
/// is.
void TokenLeases::forget_expired(microseconds now) noexcept
{
    table_.forget_expired([now](const Entry& entry) {
        const bool lapsed =
            entry.lease == nullptr || entry.lease->left() == 0 || entry.lease->over(now);
        const bool recent =
            !was_set_back(entry.period_began, now) && now - entry.period_began < 2 * period;
        return lapsed && !recent;
    });
}

void TokenLeases::forget_key(std::string_view key) noexcept
{
    const ZoneLock lock(table_.pool());

    table_.forget_key(key);
}

bool TokenLeases::forget_oldest() noexcept
{
    return table_.forget_oldest();
}

}  // namespace ratelimit

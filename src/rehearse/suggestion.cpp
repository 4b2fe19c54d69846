#include "rehearse/suggestion.h"

#include "limit/calendar.h"
#include "rehearse/input_error.h"
#include "rehearse/key_table.h"

#include <cerrno>
#include <cmath>
#include <cstring>

namespace ratelimit::rehearse {

std::optional<Refusals> replay(Trace& trace, const Policy& policy, std::uint64_t most)
{
    if (!policy.possible()) {
        return std::nullopt;
    }
    KeyTable keys(policy.algorithm, 1, 0);
    Refusals refusals;
    Policy current = policy;
    trace.replay([&](const Trace::Entry& entry) {
        const std::string_view text(reinterpret_cast<const char*>(&entry.key), sizeof(entry.key));
        KeyTable::Key& key = keys.find(text, entry.time);
        enter_period(current, microseconds{ entry.time });
        KeyCheck check(
            keys.record_of(key, current.period_number).state, current, microseconds{ entry.time },
            entry.cost, microseconds{ entry.end });
        const bool granted = check.granted();
        check.commit(granted);
        key.expires = entry.time + check.life().count();
        KeyCount& count = keys.count(key, 0);
        ++count.requests;
        if (!granted) {
            ++refusals.requests;
            refusals.succeeded += entry.succeeded ? 1 : 0;
            refusals.keys += count.refused++ == 0 ? 1 : 0;
        }
        return refusals.keys <= most;
    });
    return refusals.keys <= most ? std::optional(refusals) : std::nullopt;
}

Trace::Trace() : file_(std::tmpfile())
{
    constexpr std::size_t entries = 8192;
    if (file_ == nullptr) {
        throw InputError(std::string("cannot create a temporary file: ") + std::strerror(errno));
    }
    buffer_.reserve(entries);
}

void Trace::flush()
{
    const std::size_t count =
        std::fwrite(buffer_.data(), sizeof(Entry), buffer_.size(), file_.get());
    if (count != buffer_.size() || std::fflush(file_.get()) != 0) {
        throw InputError(std::string("cannot write a temporary file: ") + std::strerror(errno));
    }
    buffer_.clear();
}

std::optional<Suggestion> suggest(
    Trace& trace, const Policy& policy, double share, std::uint64_t keys)
{
    const auto most = static_cast<std::uint64_t>(std::floor(share * static_cast<double>(keys)));
    const std::int64_t largest = traits_of(policy.algorithm).most_quota;
    const auto by_quota = [&](std::int64_t quota) {
        Policy other = policy;
        other.rate.quota = quota;
        return replay(trace, other, most);
    };
    std::int64_t too_small = 0;
    Suggestion best;
    std::int64_t quota = policy.rate.quota;
    for (;;) {  // upwards until one is large enough
        if (const auto refused = by_quota(quota)) {
            best = { quota, refused->keys };
            break;
        }
        if (quota == largest) {
            return std::nullopt;
        }
        too_small = quota;
        quota = quota > largest / 4 ? largest : quota * 4;
    }
    while (best.quota - too_small > 1) {
        // Small quotas end a replay early, so the search looks for one of them first.
        const std::int64_t middle =
            too_small == 0 ? (best.quota + 3) / 4 : too_small + (best.quota - too_small) / 2;
        if (const auto refused = by_quota(middle)) {
            best = { middle, refused->keys };
        } else {
            too_small = middle;
        }
    }
    return best;
}

}  // namespace ratelimit::rehearse

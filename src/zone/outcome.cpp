#include "zone/outcome.h"

#include "limit/rate_headers.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// An empty retry time means never, which is the longest.
bool longer(std::optional<microseconds> left, std::optional<microseconds> right) noexcept
{
    if (!left || !right) {
        return !left && right;
    }
    return *left > *right;
}

bool refuses(const AppliedLimit& limit) noexcept
{
    return limit.decided && !limit.shadow && !limit.state.granted;
}

/// Whether `left` comes before `right`: enforced before shadow, then by the share that is left,
/// then a refusal before a grant.
bool less_left(const AppliedLimit& left, const AppliedLimit& right) noexcept
{
    if (left.shadow != right.shadow) {
        return right.shadow;
    }
    const auto left_share = left.state.remaining * right.policy.limit();
    const auto right_share = right.state.remaining * left.policy.limit();
    if (left_share != right_share) {
        return left_share < right_share;
    }
    return refuses(left) && !refuses(right);
}

}  // namespace

Result result_of(Decided decided, bool undecided, FailMode mode, bool dry_run) noexcept
{
    struct Row {
        Result open;  // and local, for limits that the memory could not decide either
        Result closed;
        Result dry_run;
    };
    using enum Result;
    static constexpr Row decided_all[] = {
        { failed_open, failed_open, failed_open },  // none: there are shadow limits only
        { passed, passed, passed },
        { delayed, delayed, delayed_dry_run },
        { rejected, rejected, rejected_dry_run },
    };
    static constexpr Row left_some[] = {
        { failed_open, failed_closed, failed_open },
        { failed_open, failed_closed, failed_open },
        { delayed, failed_closed, delayed_dry_run },
        { rejected, failed_closed, rejected_dry_run },
    };
    const Row& row = (undecided ? left_some : decided_all)[static_cast<std::size_t>(decided)];
    if (dry_run) {
        return row.dry_run;
    }
    return mode == FailMode::closed ? row.closed : row.open;
}

Outcome outcome_of(std::span<const AppliedLimit> limits) noexcept
{
    Outcome outcome;

    const AppliedLimit* least_left = nullptr;
    const AppliedLimit* decides = nullptr;  // refuses or delays
    for (const AppliedLimit& limit : limits) {
        if (!limit.decided) {
            continue;
        }
        if (least_left == nullptr || less_left(limit, *least_left)) {
            least_left = &limit;
        }
        if (limit.shadow) {
            continue;
        }
        if (limit.state.granted) {
            const auto wait = delay_of(limit);
            if (!outcome.refused && wait > outcome.wait) {
                outcome.wait = wait;
                decides = &limit;
            }
            continue;
        }
        const auto retry_after = shown_retry(limit.state);
        if (!outcome.refused || longer(retry_after, outcome.retry_after)) {
            outcome = { .refused = true, .retry_after = retry_after };
            decides = &limit;
        }
    }
    const auto index_of = [&](const AppliedLimit* limit) {
        return static_cast<std::size_t>(limit - limits.data());
    };
    outcome.least_left = index_of(least_left);
    outcome.decided_by = decides == nullptr ? outcome.least_left : index_of(decides);
    return outcome;
}

}  // namespace ratelimit

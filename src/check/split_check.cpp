#include "check/split_check.h"

#include "check/coalescer.h"
#include "check/give_back.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace ratelimit {

namespace {

bool same_place(const RemoteCheck& left, const RemoteCheck& right) noexcept
{
    return left.coalescer == right.coalescer && left.place == right.place;
}

bool in_one_place(std::span<RemoteCheck> checks)
{
    if (checks.size() == 1) {
        return true;
    }
    for (RemoteCheck& check : checks) {
        check.place = check.coalescer->client().shard_of(check.key);
    }
    return std::all_of(checks.begin(), checks.end(), [&](const RemoteCheck& check) {
        return same_place(check, checks.front());
    });
}

}  // namespace

SplitCheck::SplitCheck(std::span<RemoteCheck> checks, Owner& owner) : owner_(owner)
{
    if (in_one_place(checks)) {
        first_.set(checks, true, *this);
        return;
    }
    // Not std::stable_sort, which allocates.
    std::sort(checks.begin(), checks.end(), [](const RemoteCheck& left, const RemoteCheck& right) {
        return std::tie(left.coalescer, left.place, left.limit)
            < std::tie(right.coalescer, right.place, right.limit);
    });
    split(checks);
}

/// Sorted by place: a group for each.
void SplitCheck::split(std::span<RemoteCheck> checks)
{
    bool first = true;
    while (!checks.empty()) {
        const auto next = std::find_if(checks.begin(), checks.end(), [&](const auto& check) {
            return !same_place(check, checks.front());
        });
        const auto group = checks.first(static_cast<std::size_t>(next - checks.begin()));
        if (first) {
            first_.set(group, false, *this);
        } else {
            add_group(group);
        }
        first = false;
        checks = checks.subspan(group.size());
    }
}

CheckGroup& SplitCheck::add_group(std::span<RemoteCheck> checks)
{
    auto more = std::make_unique<More>();
    more->group.set(checks, false, *this);
    more->next = std::move(more_);
    more_ = std::move(more);
    return more_->group;
}

void SplitCheck::ask_ahead(std::int64_t requests) noexcept
{
    first_.ask_ahead(requests);
    for (More* more = more_.get(); more != nullptr; more = more->next.get()) {
        more->group.ask_ahead(requests);
    }
}

void SplitCheck::taken_ahead(
    CheckGroup& group, std::span<const BatchAnswer> answers, std::int64_t spent) noexcept
try {
    if (group.alone()) {
        owner_.taken_ahead(group.checks(), answers, spent);
    } else {
        ahead_.push_back({ &group, { answers.begin(), answers.end() }, spent });
    }
} catch (const std::exception&) {
    // Out of memory: it lapses.
}

std::int64_t SplitCheck::Ahead::passing() const noexcept
{
    constexpr auto none = std::numeric_limits<std::int64_t>::max();
    std::int64_t least = none;
    std::int64_t most = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
        most = std::max(most, answers[i].taken);
        if (!group->checks()[i].shadow) {
            least = std::min(least, answers[i].taken);
        }
    }
    return least == none ? most : least;
}

void SplitCheck::settle_ahead(microseconds now) noexcept
{
    if (ahead_.empty()) {
        return;
    }
    std::int64_t kept = std::numeric_limits<std::int64_t>::max();
    std::size_t groups = 0;
    each_group([&](const CheckGroup& group) {
        ++groups;
        kept = group.took() ? kept : 0;
    });
    kept = ahead_.size() == groups ? kept : 0;
    for (const Ahead& ahead : ahead_) {
        kept = std::min(kept, ahead.passing() - ahead.spent);
    }
    for (Ahead& ahead : ahead_) {
        settle(ahead, kept, now);
    }
    ahead_.clear();
}

void SplitCheck::settle(Ahead& ahead, std::int64_t kept, microseconds now) noexcept
{
    const std::int64_t spent = ahead.passing() - kept;
    for (std::size_t i = 0; i < ahead.answers.size(); ++i) {
        RemoteCheck check = ahead.group->checks()[i];
        BatchAnswer& answer = ahead.answers[i];
        const std::int64_t rest = std::min(answer.taken, spent) - ahead.spent;
        if (rest > 0) {
            LimitState state{ true, answer.remaining, answer.reset, microseconds{ 0 } };
            check.state = &state;
            check.cost *= rest;
            ratelimit::give_back(check, ahead.group->taken_at(check), now);
            answer.remaining = std::min(check.policy.limit(), answer.remaining + check.cost);
        }
    }
    if (kept > 0) {
        owner_.taken_ahead(ahead.group->checks(), ahead.answers, spent);
    }
}

bool SplitCheck::send()
{
    pending_ = first_.send() ? 1 : 0;
    for (More* more = more_.get(); more != nullptr; more = more->next.get()) {
        pending_ += more->group.send() ? 1 : 0;
    }
    return pending_ != 0;
}

void SplitCheck::group_ended(CheckGroup&) noexcept
{
    if (--pending_ == 0) {
        owner_.checked();
    }
}

void SplitCheck::group_apart(CheckGroup& group) noexcept
{
    const auto checks = group.checks();
    More* const known = more_.get();
    try {
        for (std::size_t i = 1; i < checks.size(); ++i) {
            add_group(checks.subspan(i, 1)).expire_with(group);
        }
    } catch (const std::exception&) {
        while (more_.get() != known) {
            more_ = std::move(more_->next);  // out of memory: the group has failed
        }
        group_ended(group);
        return;
    }
    for (More* more = more_.get(); more != known; more = more->next.get()) {
        pending_ += more->group.send() ? 1 : 0;
    }
    group.set(checks.first(1), false, *this);
    if (!group.send()) {
        group_ended(group);
    }
}

bool SplitCheck::give_back(microseconds now) noexcept
{
    bool given = false;
    each_group([&](const CheckGroup& group) {
        if (group.alone() || !group.took()) {
            return;
        }
        for (const RemoteCheck& check : group.checks()) {
            if (check.state->granted && check.cost > 0) {
                ratelimit::give_back(check, group.taken_at(check), now);
                *check.state = check.without;
                given = true;
            }
        }
    });
    return given;
}

}  // namespace ratelimit

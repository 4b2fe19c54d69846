#include "rehearse/count/bounds.h"

#include "limit/wide.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

/// Counts a request that may have passed in a state that does not grant it. A state of one number
/// need not go beyond the limit.
void count_beyond(Decider::Decided& limit, std::int64_t now)
{
    KeyState& state = limit.record->state;
    if (auto* arrival = std::get_if<ArrivalTime>(&state)) {
        const ArrivalTime before = *arrival;
        limit.check->charge();
        const Rate& rate = limit.policy.rate;
        const Wide full = Wide{ limit.policy.limit() } * rate.window.count() / rate.quota;
        const auto most = static_cast<std::int64_t>(now + full + 1);
        if (arrival->whole > most) {
            *arrival = before.whole > most ? before : ArrivalTime{ most, 0, arrival->latest };
        }
    } else if (auto* counts = std::get_if<WindowCounts>(&state)) {
        const WindowCounts before = *counts;
        limit.check->charge();
        const std::int64_t current = before.start == counts->start ? before.current : 0;
        counts->current = std::max(current, std::min(counts->current, limit.policy.limit()));
    } else {
        limit.check->charge();
    }
    limit.key->expires = std::max(limit.key->expires, now + limit.check->life().count());
}

}  // namespace

Bounds::Answer Bounds::decide(const Course& course, bool sure, std::int64_t now, std::int64_t end)
{
    const bool may_pass = least_.check(course.asked, now, end, course.fails_closed);
    const bool must_pass = most_.check(course.asked, now, end, course.fails_closed);
    for (std::size_t i = 0; i < course.asked.size(); ++i) {
        const AskedLimit& asked = course.asked[i];
        Decider::Decided& least = least_.decided_[i];
        Decider::Decided& most = most_.decided_[i];
        if (!least.check) {
            continue;
        }
        const bool may_block =
            least.blocked.count() == 0 && most_.begins_block(asked, most, must_pass);
        const bool must_block =
            sure && most.blocked.count() == 0 && least_.begins_block(asked, least, may_pass);
        const bool counts = may_pass && least.grants();
        Decider::commit(asked, least, now, sure && must_pass && most.grants());
        if (counts && !most.grants()) {
            count_beyond(most, now);
            if (asked.charge > most.cost) {
                Decider::settle(asked, most, now);
            }
        } else {
            Decider::commit(asked, most, now, counts);
        }
        if (must_block) {
            Decider::begin_block(least, now);
        }
        if (may_block) {
            Decider::begin_block(most, now);
        }
    }
    return { may_pass, !must_pass };
}

void Bounds::decide(std::span<const Course> courses, std::int64_t now, std::int64_t end)
{
    bool meets_none = false;
    bool may_pass = false;
    bool may_be_refused = false;
    for (const Course& one : courses) {
        Answer answer{ one.met, one.refused };
        if (!one.asked.empty()) {
            answer = decide(one, courses.size() == 1, now, end);
        }
        meets_none = meets_none || (one.asked.empty() && !one.met && !one.refused);
        may_pass = may_pass || (answer.may_pass && !one.refused);
        may_be_refused = may_be_refused || answer.may_be_refused || one.refused;
    }
    requests_ += may_pass || may_be_refused ? 1 : 0;
    least_refused_ += may_be_refused && !may_pass && !meets_none ? 1 : 0;
    most_refused_ += may_be_refused ? 1 : 0;
}

}  // namespace ratelimit::rehearse

#include "check/shared_check.h"

#include "check/coalescer.h"

#include <algorithm>
#include <functional>

namespace ratelimit {

namespace {

/// Each run of a call is some work of its own for Redis, and what waits for it waits.
constexpr std::size_t most_runs = 100;

/// All but the key, cost and time.
bool alike(const LimitCheck& left, const LimitCheck& right) noexcept
{
    return left.policy == right.policy && left.shadow == right.shadow
        && left.now.has_value() == right.now.has_value();
}

void write_state(RemoteCheck& check, const BatchAnswer& answer, std::int64_t index) noexcept
{
    *check.state = state_in_batch(answer, check.policy, check.cost, index);
    if (index < answer.taken) {
        check.without = state_without(answer, check.policy, check.cost, index);
    }
}

}  // namespace

void SharedCheck::begin(std::size_t hash, const CheckGroup& group)
{
    hash_ = hash;
    alone_ = group.alone();
    scripts_ = group.checks().front().scripts;
    keys_.clear();
    limits_.clear();
    for (const RemoteCheck& check : group.checks()) {
        keys_ += check.key;
        limits_.push_back(check);
    }
    const char* key = keys_.data();
    for (LimitCheck& limit : limits_) {
        limit.key = { key, limit.key.size() };
        key += limit.key.size();
    }
}

bool SharedCheck::same(const CheckGroup& group) const noexcept
{
    const auto checks = group.checks();
    return alone_ == group.alone() && scripts_.several == checks.front().scripts.several
        && std::equal(
               limits_.begin(), limits_.end(), checks.begin(), checks.end(),
               [](const LimitCheck& limit, const RemoteCheck& check) {
                   return limit.key == check.key && alike(limit, check);
               });
}

bool SharedCheck::joins_last_run(const CheckGroup& group) const noexcept
{
    const auto checks = group.checks();
    return !runs_.empty()
        && std::equal(
            checks.begin(), checks.end(), runs_.end() - static_cast<long>(checks.size()),
            [](const RemoteCheck& check, std::int64_t cost) { return check.cost == cost; });
}

/// False: there are too many runs.
bool SharedCheck::add_to_runs(CheckGroup& group)
{
    const auto checks = group.checks();
    const std::size_t stride = 1 + checks.size();
    if (!joins_last_run(group)) {
        if (runs_.size() >= most_runs * stride) {
            return false;
        }
        runs_.push_back(0);
        for (const RemoteCheck& check : checks) {
            runs_.push_back(check.cost);
        }
    }
    group.run_ = runs_.size() / stride - 1;
    group.index_ = runs_[group.run_ * stride]++;
    ++requests_;
    return true;
}

/// What the last request of a call decides for it: it may take some ahead, and all are decided at
/// its time.
void SharedCheck::finish_runs(const CheckGroup& last) noexcept
{
    ahead_ = last.ahead_;
    asked_at_ = last.checks().front().asked;
    if (ahead_ > 0) {
        sent_at_ = owner_.client().now();
    }
    runs_[last.run_ * (1 + limits_.size())] += ahead_;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        limits_[i].now = last.checks()[i].now;
    }
}

bool SharedCheck::ask(CheckGroup& group) noexcept
try {
    runs_.clear();
    requests_ = 0;
    add_to_runs(group);
    finish_runs(group);
    routing.expires = group.expires_;
    if (!owner_.client().send(*this)) {
        return false;
    }
    asked_.push_back(group);
    return true;
} catch (const std::exception&) {
    return false;
}

/// As many of those that wait as go in one call. In haste it lasts until the last of them is
/// overdue, and each fails when it is. False: it was not sent, and those of it are to be told.
bool SharedCheck::ask_waiting(bool in_haste) noexcept
try {
    routing.expires = waiting_.front().expires_;
    runs_.clear();
    requests_ = 0;
    while (!waiting_.empty() && add_to_runs(waiting_.front())) {
        asked_.push_back(waiting_.front());
        routing.expires = std::min(routing.expires, asked_.back().expires_);
    }
    finish_runs(asked_.back());
    if (in_haste) {
        routing.expires = usual_end_of(asked_.back());
        watch_own_times();
    }
    return owner_.client().send(*this);
} catch (const std::exception&) {
    if (asked_.empty()) {
        asked_.push_back(waiting_.front());
    }
    return false;
}

/// Until the next of those asked is overdue.
void SharedCheck::watch_own_times() noexcept
try {
    if (own_times_ == nullptr) {
        own_times_ = owner_.client().make_timer([this] { fail_overdue(); });
    }
    const auto left = usual_end_of(asked_.front()) - owner_.client().now();
    own_times_->start(std::max(left, redis::milliseconds{ 1 }));
} catch (const std::exception&) {
    // Out of memory: they fail when the call does.
}

void SharedCheck::fail_overdue() noexcept
{
    GroupList ended;
    while (!asked_.empty() && overdue(asked_.front())) {
        asked_.front().fail(false);
        ended.push_back(asked_.front());
    }
    if (!asked_.empty()) {
        watch_own_times();
    }
    while (!ended.empty()) {
        ended.pop_front().tell();
    }
}

bool SharedCheck::single() const noexcept
{
    return alone_ && limits_.size() == 1 && runs_.size() == 2 && runs_.front() == 1;
}

std::size_t SharedCheck::answers() const noexcept
{
    return runs_.size() / (1 + limits_.size()) * limits_.size();
}

void SharedCheck::write_numbers(redis::ScriptArguments& arguments) const
{
    LimitCheck check = limits_.front();
    check.cost = runs_.back();
    write_single_numbers(check, arguments);
}

void SharedCheck::write(redis::CommandBuffer& command) const
{
    command.begin_script(scripts_.several, several_argument_count(limits_.size(), runs_));
    write_several_arguments(limits_, runs_, command);
}

void SharedCheck::read_several(const SeveralReply& answer) noexcept
{
    asked_.each([&](CheckGroup& group) {
        const auto checks = group.checks();
        for (std::size_t i = 0; i < checks.size(); ++i) {
            RemoteCheck& check = checks[i];
            write_state(check, answer.answer(group.run_ * checks.size() + i), group.index_);
            check.now = limits_[i].now;
        }
        group.server_time_ = answer.server_time();
        group.end_ = CheckGroup::End::answered;
    });
    if (ahead_ > 0) {
        hand_on(answer);
    }
}

std::vector<BatchAnswer> SharedCheck::answers_of_last_run(const SeveralReply& reply) const
{
    std::vector<BatchAnswer> last;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        last.push_back(reply.answer(answers() - limits_.size() + i));
    }
    return last;
}

/// So many requests of a run were let in by all limits that enforce.
std::int64_t SharedCheck::passing(std::span<const BatchAnswer> answers) const noexcept
{
    std::int64_t passing = runs_[runs_.size() - 1 - limits_.size()];
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        if (!limits_[i].shadow) {
            passing = std::min(passing, answers[i].taken);
        }
    }
    return passing;
}

/// Whether the answer came so late that what was taken ahead is not to be spent any more.
bool SharedCheck::lapsed(std::span<const BatchAnswer> answers) const noexcept
{
    const auto age = owner_.client().now() - sent_at_;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        if (age >= life_ahead(answers[i], limits_[i].policy.algorithm)) {
            return true;
        }
    }
    return false;
}

/// What was taken ahead is first for those that came meanwhile, in their order.
void SharedCheck::hand_on(const SeveralReply& reply) noexcept
try {
    const auto answers = answers_of_last_run(reply);
    if (lapsed(answers)) {
        return;
    }
    const std::int64_t most = passing(answers);
    std::int64_t index = runs_[runs_.size() - 1 - limits_.size()] - ahead_;
    while (index < most && !waiting_.empty() && joins_last_run(waiting_.front())) {
        CheckGroup& group = waiting_.front();
        tell(group, answers, index++);
        group.server_time_ = reply.server_time();
        asked_.push_back(group);
    }
    if (index < most && !asked_.empty() && joins_last_run(asked_.back())) {
        CheckGroup& group = asked_.back();
        group.owner_->taken_ahead(group, answers, index);
        // There is something left: it would pile up.
        waiting_.each([](CheckGroup& other) { other.ahead_ = 0; });
    }
} catch (const std::exception&) {
    // Out of memory: it lapses.
}

void SharedCheck::tell(
    CheckGroup& group, std::span<const BatchAnswer> answers, std::int64_t index) noexcept
{
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        RemoteCheck& check = group.checks()[i];
        write_state(check, answers[i], index);
        check.now = limits_[i].now;
        check.leased = true;
        check.asked = asked_at_;
    }
    group.end_ = CheckGroup::End::answered;
}

bool SharedCheck::on_reply(const redisReply& reply) noexcept
{
    const SeveralReply answer(reply, answers());
    if (!answer.good()) {
        return false;
    }
    read_several(answer);
    end(false);
    return true;
}

/// One request, of one limit.
bool SharedCheck::on_part(std::string_view part) noexcept
{
    LimitState state;
    if (!read_single_part(part, state)) {
        return false;
    }
    asked_.each([&](CheckGroup& group) {
        *group.checks().front().state = state;
        group.end_ = CheckGroup::End::answered;
    });
    end(false);
    return true;
}

void SharedCheck::on_failure(redis::Failure failure) noexcept
{
    fail_asked(failure == redis::Failure::slot_migrating && limits_.size() > 1);
    end(failure == redis::Failure::timeout);
}

/// By when a group that waited has its answer, if it did not wait for a connection.
redis::milliseconds SharedCheck::usual_end_of(const CheckGroup& group) const noexcept
{
    const redis::Client& client = owner_.client();
    return group.expires_ - client.longest_wait() + client.usual_wait();
}

bool SharedCheck::overdue(const CheckGroup& group) const noexcept
{
    return usual_end_of(group) <= owner_.client().now();
}

/// Those that are overdue when it times out fail with it.
unsigned SharedCheck::request_count() const noexcept
{
    unsigned requests = requests_;
    waiting_.each([&](const CheckGroup& group) { requests += overdue(group) ? 1 : 0; });
    return requests;
}

void SharedCheck::fail_asked(bool apart) noexcept
{
    asked_.each([&](CheckGroup& group) { group.fail(apart); });
}

/// The next call leaves before the owners hear of this one: they may take their time, and may send
/// others. After one that has timed out it is in haste: who has waited for a server that hangs does
/// not wait for it once more. A server that answers late is one that answers.
void SharedCheck::end(bool timed_out) noexcept
{
    GroupList ended;
    ended.take_all(asked_);
    if (own_times_ != nullptr) {
        own_times_->stop();
    }
    while (timed_out && !waiting_.empty() && overdue(waiting_.front())) {
        waiting_.front().fail(false);
        ended.push_back(waiting_.front());
    }
    bool sent = false;
    while (!sent && !waiting_.empty()) {
        sent = ask_waiting(timed_out);
        if (!sent) {
            fail_asked(false);
            ended.take_all(asked_);
        }
    }
    if (!sent) {
        owner_.remove(*this);
    }
    while (!ended.empty()) {
        ended.pop_front().tell();
    }
}

}  // namespace ratelimit

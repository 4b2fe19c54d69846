#include "check/holding.h"

#include "base/random.h"
#include "check/script_reply.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace ratelimit {

namespace {

using std::chrono::duration_cast;

constexpr milliseconds longest_pause{ 50 };  // before a statement that failed is sent again

#ifdef RATELIMIT_ASSERTIONS
constexpr bool asserts = true;
#else
constexpr bool asserts = false;
#endif

}  // namespace

/// Whether the table of the states holds.
bool Holding::legal() const noexcept
{
    switch (state_) {
    case State::unused:
        return unanswered_ == 0 && held_ == 0;
    case State::idle:
        return unanswered_ == 0 && held_ == 0 && known_ == 0;
    case State::stated:
        return unanswered_ == 0 && held_ > 0 && known_ == held_;
    case State::open:
    case State::ending:
        return unanswered_ > 0;
    case State::owed:
        return unanswered_ == 0 && (held_ > 0 || known_ != 0);
    case State::freed:
        return unanswered_ == 0 && known_ != 0;
    }
    return false;
}

void Holding::become(State state) noexcept
{
    --all_.number_of(state_);
    state_ = state;
    ++all_.number_of(state_);
    if (asserts && !legal()) {
        std::abort();
    }
}

void Holding::begin(bool takes) noexcept
{
    if (takes) {
        counts_since_ = all_.now();
    }
    if (unanswered_++ > 0) {
        return;
    }
    if (takes) {
        all_.client_.outbox().settled(*this);  // the check states what is owed
    }
    Link<Holding>::unlink();
    become(State::open);
    written_ = false;
    outcome_ = Outcome::refused;
    taken_ = 0;
}

void Holding::before_write() noexcept
{
    if (std::exchange(written_, true)) {
        return;
    }
    base_ = held_;
    number_ = std::max(number_ + 1, all_.redis_time(*this));
    all_.highest_number_ = std::max(all_.highest_number_, number_);
    if (base_ > 0) {
        counts_since_ = all_.now();
        may_count_ = true;
    }
}

Statement Holding::statement() const noexcept
{
    return { all_.id_, number_, base_, place_, all_.longest_delay_ };
}

void Holding::answered(const Answer& answer) noexcept
{
    offset_ = answer.server_time - all_.monotonic_();
    if (answer.ignored) {
        failed(Executed::statement);
        return;
    }
    become(State::ending);
    note(Outcome::answered);
    taken_ += answer.units;
    may_count_ = may_count_ || taken_ > 0;
    place_ = answer.place;
}

void Holding::failed(Executed executed) noexcept
{
    become(State::ending);
    note(executed == Executed::nothing ? Outcome::refused : Outcome::uncertain);
    may_count_ = may_count_ || executed == Executed::check;
}

void Holding::message_ended(bool timed_out) noexcept
{
    if (--unanswered_ > 0) {
        return;
    }
    if (outcome_ == Outcome::uncertain) {
        known_.reset();
    } else if (outcome_ == Outcome::answered) {
        known_ = base_ + taken_;
        may_count_ = known_ != 0;
    }
    List<Waiter> waiters;
    waiters.take_all(waiters_);
    enter();  // what they send may make the worker forget another holding
    while (!waiters.empty()) {
        waiters.pop_front().proceed(timed_out);
    }
    leave();
    if (unanswered_ == 0) {
        settle();
    }
}

void Holding::hold(std::int64_t units) noexcept
{
    held_ += units;
    all_.count_(units);
}

void Holding::release(std::int64_t units) noexcept
{
    held_ -= units;
    if (!all_.closed_) {
        all_.count_(-units);
        all_.last_release_ = all_.client_.now();
        if (state_ == State::stated) {
            settle();
        }
    }
}

/// No message is in flight: sends a statement, or puts the holding where its next step is due.
void Holding::settle() noexcept
{
    if (all_.closed_) {
        return;
    }
    if (is_over()) {
        known_ = 0;
        may_count_ = false;
    }
    if (outcome_ != Outcome::answered && (held_ > 0 || known_ != 0)) {
        all_.owe(*this, std::min(all_.hold_ / buckets_per_hold, longest_pause));
    } else if (known_ != held_) {
        all_.client_.outbox().send(*this);
    } else {
        all_.client_.outbox().settled(*this);
        all_.put_into_list(*this);
    }
    all_.forget_one();
}

redis::Owed::Terms Holding::terms() const noexcept
{
    return { shard_, all_.group_, rank(), all_.last_release_ };
}

milliseconds Holding::lapses() const noexcept
{
    return all_.client_.now() + counts_since_ + all_.hold_ - all_.now();
}

bool Holding::lapsed() noexcept
{
    const bool over = is_over();
    if (over) {
        settle();
    }
    return over;
}

void Holding::write_numbers(redis::ScriptArguments& arguments) const
{
    write_statement(policy_, *this, arguments);
}

bool Holding::on_answer(std::string_view part) noexcept
{
    KeyReply reply;
    if (!read_sequence_reply(part, reply)) {
        return false;
    }
    answered({ reply.ignored, 0, reply.place, reply.server_time });
    message_ended(false);
    return true;
}

void Holding::on_failure(redis::Fate fate) noexcept
{
    using redis::Fate;
    failed(maybe_executed(fate) ? Executed::statement : Executed::nothing);
    message_ended(fate == Fate::overdue || fate == Fate::expired);
}

Holdings::Holdings(Parts parts)
    : client_(parts.client),
      hold_(duration_cast<milliseconds>(parts.hold)),
      monotonic_(parts.monotonic),
      count_(std::move(parts.count)),
      id_(static_cast<std::int64_t>(random_number() >> 11U | 1U)),  // a double is exact for it
      longest_delay_(client_.longest_wait() + client_.usual_wait()),
      group_(client_.outbox().add_group()),
      timer_(client_.make_timer([this] { fire(); }))
{
    timer_->cancelable(true);  // a request that holds something keeps the process
}

Holding& Holdings::of(const LimitCheck& check, std::uint32_t shard, redis::ScriptId statements)
{
    const std::size_t hash = table_.hash_of(check.redis_key);
    Holding* found =
        table_.find(hash, [&](const Holding& holding) { return holding.key_ == check.redis_key; });
    if (found == nullptr) {
        if (number_of(Holding::State::freed) >= most_keys) {
            throw std::length_error("too many keys wait for a statement");
        }
        forget_idle();
        forget_idle();  // so that they become fewer
        found = &table_.add(hash, *this);
        ++number_of(Holding::State::unused);
        found->key_ = check.redis_key;
        found->shard_ = shard;
        found->known_ = 0;
        found->place_ = -1;
        found->offset_.reset();
        // Above those of an earlier holding of the key, also if the clock was set back since.
        found->number_ = highest_number_;
        found->may_count_ = false;
        found->outcome_ = Holding::Outcome::answered;
        found->enter();
        put_into_list(*found);  // its call may end without a message
        forget_one();
        found->leave();
    }
    found->policy_ = check.policy;
    found->script_ = statements;
    return *found;
}

milliseconds Holdings::now() const noexcept
{
    return duration_cast<milliseconds>(monotonic_());
}

/// The estimate of the clock of the holding's server. 0: not known.
std::int64_t Holdings::redis_time(const Holding& holding) const noexcept
{
    if (holding.offset_) {
        return (monotonic_() + *holding.offset_).count();
    }
    return client_.server_time(holding.shard_).value_or(microseconds{ 0 }).count();
}

void Holdings::owe(Holding& holding, milliseconds pause) noexcept
{
    using State = Holding::State;
    holding.Link<Holding>::unlink();
    holding.become(holding.rank() == redis::Owed::Rank::counts ? State::freed : State::owed);
    client_.outbox().keep(holding, pause);
}

void Holdings::put_into_list(Holding& holding) noexcept
{
    const bool holds = holding.held_ > 0;
    holding.become(holds ? Holding::State::stated : Holding::State::idle);
    holding.due_ = now() + (holds ? hold_ / 2 : hold_);
    (holds ? stated_ : idle_).push_back(holding);
    if (holds && !timer_->running()) {
        timer_->start(hold_ / timers_per_hold);
    }
}

void Holdings::forget(Holding& holding) noexcept
{
    client_.outbox().settled(holding);
    holding.Link<Holding>::unlink();
    holding.become(Holding::State::unused);
    --number_of(Holding::State::unused);
    table_.remove(holding);
}

/// Forgets the first idle holding, if it is due. If a call refers to it, it stays for another
/// `hold`.
void Holdings::forget_idle() noexcept
{
    if (idle_.empty() || idle_.front().due_ > now()) {
        return;
    }
    Holding& first = idle_.front();
    if (first.calls_ == 0) {
        forget(first);
    } else {
        first.due_ = now() + hold_;
        idle_.push_back(first);
    }
}

/// If there are too many, forgets a holding that holds nothing, and of which Redis counts nothing.
void Holdings::forget_one() noexcept
{
    if (table_.size() <= most_keys) {
        return;
    }
    const auto remove = [this](Holding& holding) {
        const bool free = holding.calls_ == 0 && holding.held_ == 0;
        if (free) {
            forget(holding);
        }
        return free;
    };
    if (idle_.find(remove) == nullptr) {
        client_.outbox().find(group_, redis::Owed::Rank::known, [&remove](redis::Owed& each) {
            return remove(static_cast<Holding&>(each));
        });
    }
}

/// Renews what is due. The timer fires more often than that: after a stop of this process it is
/// extended by up to its delay (DueTime), which must not take the time until the units are free.
void Holdings::fire() noexcept
{
    const milliseconds at = now();
    for (int left = most_sent; left > 0 && !stated_.empty() && stated_.front().due_ <= at; --left) {
        client_.outbox().send(stated_.front());
    }
    if (!stated_.empty()) {
        timer_->start(hold_ / timers_per_hold);
    }
}

void Holdings::restate(std::uint32_t server) noexcept
{
    const auto restate_its = [this, server](Holding& holding) {
        if (client_.server_of(holding.shard_) == server && !holding.is_over()) {
            restate(holding);
        }
    };
    stated_.each(restate_its);  // first: they are in the order in which they were stated
    table_.each(restate_its);
}

void Holdings::restate(Holding& holding) noexcept
{
    holding.known_.reset();
    holding.outcome_ = Holding::Outcome::uncertain;
    if (holding.unanswered_ == 0) {
        owe(holding, milliseconds{ 0 });
    }
}

void Holdings::close() noexcept
try {
    closed_ = true;
    timer_->stop();
    std::int64_t held = 0;
    table_.each([&](Holding& holding) {
        client_.outbox().settled(holding);
        holding.Link<Holding>::unlink();
        const bool holds = holding.rank() != redis::Owed::Rank::known;
        held += std::exchange(holding.held_, 0);
        if (holding.known_ != 0 || holding.unanswered_ > 0) {
            holding.written_ = false;  // a statement of its own
            holding.before_write();
            const Statement none = holding.statement();
            last_.add(holds, holding.key_, holding.policy_, holding.script_, none);
        }
    });
    count_(-held);
    last_.send(client_, last_.size());
} catch (const std::exception&) {
    // Out of memory: what is not stated is free after `hold`.
}

}  // namespace ratelimit

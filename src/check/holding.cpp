#include "check/holding.h"

#include "check/script_reply.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace ratelimit {

namespace {

constexpr milliseconds longest_pause{ 50 };  // before a statement that failed is sent again

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
    all_.freed_ -= state_ == State::freed ? 1 : 0;
    state_ = state;
    all_.freed_ += state_ == State::freed ? 1 : 0;
#ifdef RATELIMIT_ASSERTIONS
    if (!legal()) {
        std::abort();
    }
#endif
}

void Holding::begin(bool takes) noexcept
{
    if (takes) {
        counts_since_ = all_.now();
    }
    if (unanswered_++ > 0 || all_.closed_) {
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

void Holding::begin_sending() noexcept
{
    if (all_.closed_) {
        written_ = false;  // other messages in flight do not matter
    } else {
        begin(false);
    }
}

/// The process exits: from now on nothing is held.
void Holding::state_none() noexcept
{
    held_ = 0;
    Link<Holding>::unlink();
    if (pending()) {
        abandon();
        --unanswered_;
    }
    all_.client_.outbox().settled(*this);
    if (known_ != 0 || unanswered_ > 0) {
        all_.client_.outbox().send(*this);
    }
}

void Holding::before_write() noexcept
{
    if (std::exchange(written_, true)) {
        return;
    }
    statement_.base = held_;
    // The server that answered last may be another one: the slot is being moved to it.
    const microseconds now = all_.monotonic_();
    const auto known = all_.client_.server_time(shard_, now).value_or(microseconds{ 0 });
    statement_.number = std::max({ statement_.number + 1, known.count(), (now + ahead_).count() });
    all_.highest_number_ = std::max(all_.highest_number_, statement_.number);
    if (held_ > 0) {
        counts_since_ = all_.now();
        may_count_ = true;
    }
}

void Holding::answered(const Answer& answer) noexcept
{
    ahead_ = answer.ahead;
    if (answer.ignored) {
        failed(Executed::statement);
        return;
    }
    become(State::ending);
    note(Outcome::answered);
    taken_ += answer.units;
    may_count_ = may_count_ || taken_ > 0;
    statement_.place = answer.place;
}

void Holding::failed(Executed executed) noexcept
{
    become(State::ending);
    note(executed == Executed::nothing ? Outcome::refused : Outcome::uncertain);
    may_count_ = may_count_ || executed == Executed::check;
}

void Holding::message_ended() noexcept
{
    if (--unanswered_ > 0) {
        return;
    }
    if (outcome_ == Outcome::uncertain) {
        known_.reset();
    } else if (outcome_ == Outcome::answered) {
        known_ = statement_.base + taken_;
        may_count_ = known_ != 0;
    }
    ask_waiters();
    if (unanswered_ == 0) {
        settle();
    }
}

void Holding::let_go() noexcept
{
    kept_for_ = nullptr;
    ask_waiters();
    if (state_ == State::owed || state_ == State::freed) {
        settle();
    }
}

void Holding::ask_waiters() noexcept
{
    List<Waiter> waiters;
    waiters.take_all(waiters_);
    enter();  // their messages may make the worker forget another holding
    while (!waiters.empty()) {
        waiters.pop_front().proceed();
    }
    leave();
}

void Holding::hold(std::int64_t units) noexcept
{
    if (all_.closed_) {
        return;
    }
    held_ += units;
    all_.count_(units);
}

void Holding::release(std::int64_t units) noexcept
{
    if (all_.closed_) {
        return;
    }
    held_ -= units;
    all_.count_(-units);
    all_.last_release_ = all_.client_.now();
    if (state_ == State::stated) {
        settle();
    }
}

/// No message is in flight: sends a statement, or puts the holding where its next step is due. The
/// message for which the key is kept will be the statement.
void Holding::settle() noexcept
{
    if (all_.closed_) {
        return;
    }
    if (outcome_ == Outcome::answered && known_ != held_) {
        if (kept_for_ == nullptr) {
            all_.client_.outbox().send(*this);
        } else {
            all_.owe(*this, all_.client_.usual_wait());
        }
        return;
    }
    const milliseconds now = all_.now();
    if (is_over(now)) {
        known_ = 0;
        may_count_ = false;
    }
    if (outcome_ != Outcome::answered && (held_ > 0 || known_ != 0)) {
        all_.owe(*this, std::min(all_.hold_ / buckets_per_hold, longest_pause));
    } else {
        all_.client_.outbox().settled(*this);
        all_.put_into_list(*this, now);
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
    const bool over = is_over(all_.now());
    if (over && all_.closed_) {
        outbox().settled(*this);
    } else if (over) {
        settle();
    }
    return over;
}

void Holding::write_numbers(redis::ScriptArguments& arguments) const
{
    const LimitCheck check{ .policy = all_.policy_, .states = &statement_ };
    write_sequence_numbers(check, 0, arguments);
}

void Holding::write_own_numbers(redis::ScriptArguments& arguments) const
{
    write_statement(statement_, arguments);
}

bool Holding::on_answer(redis::ReplyPart part) noexcept
{
    KeyReply reply;
    if (!read_sequence_reply(part, all_.policy_, 0, reply)) {
        return false;
    }
    if (all_.closed_) {
        outbox().settled(*this);
        return true;
    }
    routing.exchange.read(reply.server_time, true);
    answered({ reply.ignored, 0, reply.place, reply.server_time - routing.exchange.answered });
    message_ended();
    return true;
}

void Holding::on_failure(redis::Fate fate) noexcept
{
    if (all_.closed_) {
        outbox().keep(*this, longest_pause);
        return;
    }
    failed(redis::maybe_executed(fate) ? Executed::statement : Executed::nothing);
    message_ended();
}

}  // namespace ratelimit

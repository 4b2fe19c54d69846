#include "check/holding.h"

#include "base/random.h"
#include "check/script_reply.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ratelimit {

namespace {

using std::chrono::duration_cast;

constexpr milliseconds longest_pause{ 50 };  // before a statement that failed is sent again
constexpr milliseconds most_exit_delay{ 60'000 };

}  // namespace

void Holding::begin(bool takes) noexcept
{
    if (takes) {
        counts_since_ = all_.now();
    }
    if (unanswered_++ > 0) {
        return;
    }
    all_.taken_from_list(*this);
    open_ = true;
    written_ = uncertain_ = any_answer_ = any_failure_ = false;
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
    open_ = false;
    any_answer_ = true;
    taken_ += answer.units;
    may_count_ = may_count_ || taken_ > 0;
    place_ = answer.place;
}

void Holding::failed(Executed executed) noexcept
{
    open_ = false;
    any_failure_ = true;
    uncertain_ = uncertain_ || executed != Executed::nothing;
    may_count_ = may_count_ || executed == Executed::check;
}

void Holding::message_ended(bool timed_out) noexcept
{
    if (--unanswered_ > 0) {
        return;
    }
    if (uncertain_) {
        known_.reset();
    } else if (any_answer_) {
        known_ = base_ + taken_;
        may_count_ = known_ != 0;
    }
    any_failure_ = any_failure_ && (held_ > 0 || known_ != 0);
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
        all_.last_release_ = all_.now();
        if (unanswered_ == 0 && !any_failure_) {
            settle();
        }
    }
}

/// No message is in flight: sends a statement, or puts the holding into the list of its next step.
void Holding::settle() noexcept
{
    if (all_.closed_) {
        return;
    }
    if (known_ != held_ && !any_failure_) {
        send();
        return;
    }
    if (is_over()) {
        known_ = 0;
        may_count_ = any_failure_ = false;
    }
    all_.put_into_list(*this);
}

/// False: it was not accepted.
bool Holding::send() noexcept
{
    begin(false);
    routing = {};
    delays_exit = rank() < 2;  // a process that ends states the rest then
    const bool sent = all_.client_.try_send(*this);
    if (!sent) {
        all_.client_.repeats().ended(*this, Ended::failed);
        failed(Executed::nothing);
        message_ended(false);
    }
    return sent;
}

void Holding::write_numbers(redis::ScriptArguments& arguments) const
{
    write_statement(policy_, *this, arguments);
}

bool Holding::on_part(std::string_view part) noexcept
{
    KeyReply reply;
    if (!read_sequence_reply(part, reply)) {
        return false;
    }
    all_.client_.repeats().ended(*this, Ended::answered);
    answered({ reply.ignored, 0, reply.place, reply.server_time });
    message_ended(false);
    return true;
}

void Holding::ended(redis::Fate fate) noexcept
{
    using redis::Fate;
    all_.client_.repeats().ended(*this, fate == Fate::overdue ? Ended::timed_out : Ended::failed);
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
      group_(client_.repeats().add_group()),
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
        if (owed_count_ >= most_keys) {
            throw std::length_error("too many keys wait for a statement");
        }
        found = &table_.add(hash, *this);
        found->key_ = check.redis_key;
        found->shard_ = shard;
        found->known_ = 0;
        found->place_ = -1;
        found->offset_.reset();
        // Above those of an earlier holding of the key, also if the clock was set back since.
        found->number_ = highest_number_;
        found->may_count_ = found->any_failure_ = false;
        found->enter();
        put_into_list(*found);  // its call may end without a message
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

void Holdings::uncount(Holding& holding) noexcept
{
    if (holding.counted_in_ != nullptr) {
        --*std::exchange(holding.counted_in_, nullptr);
    }
}

void Holdings::taken_from_list(Holding& holding) noexcept
{
    uncount(holding);
    holding.Link<Holding>::unlink();
    holding.stop_waiting();
}

void Holdings::put_into_failed(Holding& holding, milliseconds pause) noexcept
{
    const std::size_t rank = holding.rank();
    holding.Link<Holding>::unlink();
    if (rank < 2) {
        client_.repeats().delay_exit(last_release_ + std::min(hold_, most_exit_delay) - now());
    }
    client_.repeats().add(holding, { group_, rank }, pause, holding.counts_since_ + hold_ - now());
    if (rank == 1) {
        holding.count_in(owed_count_);
    }
}

void Holdings::put_into_list(Holding& holding) noexcept
{
    taken_from_list(holding);
    if (holding.any_failure_) {
        put_into_failed(holding, std::min(hold_ / buckets_per_hold, longest_pause));
    } else {
        const bool holds = holding.held_ > 0;
        holding.due_ = now() + (holds ? hold_ / 2 : hold_);
        (holds ? stated_ : idle_).push_back(holding);
        if (!holds) {
            holding.count_in(idle_count_);
        }
    }
    if (table_.size() > most_keys) {
        forget_one();
    }
    watch();
}

void Holdings::forget(Holding& holding) noexcept
{
    taken_from_list(holding);
    table_.remove(holding);
}

/// Forgets the first idle holding. If a call refers to it, it stays for another `hold`.
void Holdings::forget_idle() noexcept
{
    Holding& first = idle_.front();
    if (first.calls_ == 0) {
        forget(first);
    } else {
        first.due_ = now() + hold_;
        idle_.push_back(first);
    }
}

/// Forgets a holding that holds nothing, and of which Redis counts nothing.
void Holdings::forget_one() noexcept
{
    const auto remove = [this](Holding& holding) {
        const bool free = holding.calls_ == 0 && holding.held_ == 0;
        if (free) {
            forget(holding);
        }
        return free;
    };
    if (idle_.find(remove) == nullptr) {
        client_.repeats().remove_one({ group_, 2 }, [&remove](redis::Repeated& each) {
            return remove(static_cast<Holding&>(each));
        });
    }
}

/// Starts the timer for what is due first. It fires more often than that: after a stop of this
/// process it is extended by up to its delay (DueTime), which must not take the time until the
/// units are free.
void Holdings::watch() noexcept
{
    if (firing_) {
        return;
    }
    milliseconds due = milliseconds::max();
    for (const List<Holding>* list : { &stated_, &idle_ }) {
        due = list->empty() ? due : std::min(due, list->front().due_);
    }
    if (due == milliseconds::max()) {
        return;
    }
    if (!timer_->running() || due < timer_due_) {
        timer_due_ = due;
        timer_->start(std::clamp(due - now(), milliseconds{ 1 }, hold_ / 32));
    }
}

void Holdings::fire() noexcept
{
    const milliseconds at = now();
    int left = most_sent;
    firing_ = true;
    while (left-- > 0 && !stated_.empty() && stated_.front().due_ <= at) {
        stated_.front().send();
    }
    firing_ = false;
    while (!idle_.empty() && idle_.front().due_ <= at) {
        forget_idle();
    }
    watch();
}

void Holdings::restate(std::uint32_t server) noexcept
{
    const auto restate_its = [this, server](Holding& holding) {
        if (holding.server() == server && !holding.is_over()) {
            restate(holding);
        }
    };
    stated_.each(restate_its);  // first: they are in the order in which they were stated
    table_.each(restate_its);
}

void Holdings::restate(Holding& holding) noexcept
{
    holding.known_.reset();
    holding.any_failure_ = holding.uncertain_ = true;
    if (holding.unanswered_ == 0) {
        uncount(holding);
        put_into_failed(holding, milliseconds{ 0 });
    }
}

void Holdings::close() noexcept
try {
    closed_ = true;
    timer_->stop();
    std::int64_t held = 0;
    table_.each([&](Holding& holding) {
        taken_from_list(holding);
        const bool holds = holding.rank() < 2;
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

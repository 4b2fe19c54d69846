#include "check/holding.h"

#include "base/random.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ratelimit {

Holdings::Holdings(Parts parts)
    : client_(parts.client),
      hold_(std::chrono::duration_cast<milliseconds>(parts.hold)),
      policy_{ .algorithm = Algorithm::concurrency, .rate = { .window = parts.hold } },
      monotonic_(parts.monotonic),
      count_(std::move(parts.count)),
      id_(static_cast<std::int64_t>(random_number() >> 11U | 1U)),  // a double is exact for it
      longest_delay_(client_.longest_wait() + client_.usual_wait()),
      group_(client_.outbox().add_group()),
      timer_(client_.loop().make_timer([this] { fire(); }))
{
}

Holding& Holdings::of(std::string_view key, std::uint32_t shard, redis::ScriptId statements)
{
    const std::size_t hash = table_.hash_of(key);
    Holding* found = table_.find(hash, [key](const Holding& each) { return each.key_ == key; });
    if (found == nullptr) {
        if (freed_ >= most_keys) {
            throw std::length_error("too many keys wait for a statement");
        }
        const milliseconds at = now();
        forget_idle(at);
        forget_idle(at);  // so that they become fewer
        found = &table_.add(hash, *this);
        try {
            found->key_ = key;
        } catch (const std::exception&) {
            table_.remove(*found);
            throw;
        }
        found->shard_ = shard;
        found->known_ = 0;
        found->ahead_ = {};
        // Above those of an earlier holding of the key, also if the clock was set back since.
        found->statement_ = { id_, highest_number_, 0, -1, longest_delay_ };
        found->may_count_ = false;
        found->outcome_ = Holding::Outcome::answered;
        found->enter();
        put_into_list(*found, at);  // its call may end without a message
        forget_one();
        found->leave();
    }
    found->script_ = statements;
    return *found;
}

milliseconds Holdings::now() const noexcept
{
    return std::chrono::duration_cast<milliseconds>(monotonic_());
}

void Holdings::owe(Holding& holding, milliseconds pause) noexcept
{
    using State = Holding::State;
    holding.Link<Holding>::unlink();
    holding.become(holding.rank() == redis::Owed::Rank::counts ? State::freed : State::owed);
    client_.outbox().keep(holding, pause);
}

void Holdings::put_into_list(Holding& holding, milliseconds now) noexcept
{
    const bool holds = holding.held_ > 0;
    holding.become(holds ? Holding::State::stated : Holding::State::idle);
    holding.due_ = now + (holds ? hold_ / 2 : hold_);
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
    table_.remove(holding);
}

/// Forgets the first idle holding, if it is due and no call refers to it; whether it did.
bool Holdings::forget_idle(milliseconds now) noexcept
{
    const bool due = !idle_.empty() && idle_.front().due_ <= now && idle_.front().calls_ == 0;
    if (due) {
        forget(idle_.front());
    }
    return due;
}

bool Holdings::rest() noexcept
{
    while (forget_idle(now())) {
    }
    return table_.size() == 0;
}

/// If there are too many, forgets a holding without units here and in Redis.
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

/// Renews the statements that are due. The timer fires more often: after a stop of this process it
/// is extended by up to its delay (DueTime), which must end before the units are free.
void Holdings::fire() noexcept
{
    const milliseconds at = now();
    for (int left = most_sent; left > 0 && !stated_.empty() && stated_.front().due_ <= at; --left) {
        client_.outbox().send(stated_.front());
    }
    if (!stated_.empty()) {
        const bool more = stated_.front().due_ <= at;
        timer_->start(more ? milliseconds{ 1 } : hold_ / timers_per_hold);
    }
}

void Holdings::restate(std::uint32_t server) noexcept
{
    const auto restate_its = [this, server](Holding& holding) {
        if (client_.server_of(holding.shard_) == server && !holding.is_over(now())) {
            holding.known_.reset();
            holding.outcome_ = Holding::Outcome::uncertain;
            if (holding.unanswered_ == 0) {
                owe(holding, milliseconds{ 0 });
            }
        }
    };
    stated_.each(restate_its);  // first: they are in the order in which they were stated
    table_.each(restate_its);
}

void Holdings::close() noexcept
{
    client_.flush();  // first, so that all that was sent before has lower numbers
    closed_ = true;
    timer_->stop();
    std::int64_t held = 0;
    table_.each([&](Holding& holding) {
        held += holding.held_;
        holding.state_none();
    });
    count_(-held);
}

}  // namespace ratelimit

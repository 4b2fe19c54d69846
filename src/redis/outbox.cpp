#include "redis/outbox.h"

#include <algorithm>
#include <array>
#include <exception>
#include <tuple>
#include <utility>

namespace ratelimit::redis {

namespace {

/// The longest time between two looks at what waits. After a stop of this process a timer is
/// extended by up to its delay (DueTime).
constexpr milliseconds longest_delay{ 50 };

/// The first is sent first.
constexpr std::array ranks = { Owed::Rank::held, Owed::Rank::counts, Owed::Rank::known };

}  // namespace

Owed::~Owed()
{
    if (owed_) {
        outbox_->settled(*this);
    }
}

void Owed::leave_window(SendWindow::Ended how) noexcept
{
    if (SendWindow* window = std::exchange(window_, nullptr)) {
        window->ended(how, outbox_->loop_.now());
        outbox_->wake(outbox_->loop_.now());
    }
}

bool Owed::on_part(ReplyPart part) noexcept
{
    leave_window(SendWindow::Ended::answered);
    return on_answer(part);
}

void Owed::ended(Fate fate) noexcept
{
    leave_window(fate == Fate::overdue ? SendWindow::Ended::timed_out : SendWindow::Ended::failed);
    on_failure(fate);
}

void Owed::overdue(PendingCall& reply) noexcept
{
    leave_window(SendWindow::Ended::timed_out);
    on_timeout(reply);
}

Outbox::Outbox(EventLoop& loop, OutboxOwner& client, UnsettledKeys& unsettled)
    : loop_(loop), client_(client), unsettled_(unsettled), alarm_(loop, [this] { fire(); })
{
    for (const Owed::Rank rank : ranks) {
        queues_[0].waiting[{ 0, rank }];
    }
}

Outbox::~Outbox()
{
    const auto drop = [this](Owed& owed) {
        owed.window_ = nullptr;
        settled(owed);
        owed.dropped();
    };
    in_flight_.each(drop);
    for (auto& [server, queue] : queues_) {
        for (const auto& [place, list] : queue.waiting) {
            list.each(drop);
        }
    }
}

List<Owed>& Outbox::list_of(std::uint32_t server, const Owed::Terms& terms) noexcept
try {
    return queues_[server].waiting[{ terms.group, terms.rank }];
} catch (const std::exception&) {
    // Out of memory.
    return queues_[0].waiting[{ 0, terms.rank }];
}

/// It is in the outbox, whether it waits or is in flight.
void Outbox::add(Owed& owed, const Owed::Terms& terms) noexcept
{
    owed.join(*this);
    count_ += std::exchange(owed.owed_, true) ? 0 : 1;
    const bool unsettled = terms.rank != Owed::Rank::known;
    if (unsettled && !owed.unsettled_) {
        unsettled_.begin(terms.began);
    } else if (!unsettled && owed.unsettled_) {
        unsettled_.end();
    }
    owed.unsettled_ = unsettled;
}

void Outbox::put(Owed& owed, List<Owed>& list) noexcept
{
    if (std::exchange(owed.list_, &list) != &list) {
        list.push_back(owed);
    }
}

void Outbox::keep(Owed& owed, milliseconds pause) noexcept
{
    const Owed::Terms terms = owed.terms();
    add(owed, terms);
    put(owed, list_of(client_.server_of(terms.shard), terms));
    owed.since_ = loop_.now();
    owed.due_ = owed.since_ + pause;
    owed.lapses_ = owed.lapses();
    wake(owed.due_);
}

void Outbox::settled(Owed& owed) noexcept
{
    if (std::exchange(owed.owed_, false)) {
        owed.leave_window(SendWindow::Ended::failed);  // if it is abandoned
        owed.unlink();
        owed.list_ = nullptr;
        --count_;
        if (std::exchange(owed.unsettled_, false)) {
            unsettled_.end();
        }
    }
}

void Outbox::take(Outbox& other) noexcept
{
    for (auto& [server, queue] : other.queues_) {
        for (const auto& [place, list] : queue.waiting) {
            list.each([&](Owed& owed) {
                other.settled(owed);
                send(owed);
            });
        }
    }
}

void Outbox::servers_changed() noexcept
{
    servers_changed_ = true;
    wake(loop_.now());
}

/// Each one to the queue of the server that has it now.
void Outbox::move_all() noexcept
{
    for (auto& [server, queue] : queues_) {
        for (const auto& [place, list] : queue.waiting) {
            list.each([&, of = place](Owed& each) {
                Owed::Terms terms = each.terms();
                std::tie(terms.group, terms.rank) = of;
                put(each, list_of(client_.server_of(terms.shard), terms));
            });
        }
    }
}

void Outbox::server_up() noexcept
{
    for (auto& [server, queue] : queues_) {
        queue.restarted = loop_.now();
    }
    wake(loop_.now());
}

void Outbox::restart(std::uint32_t server) noexcept
{
    const auto found = queues_.find(server);
    if (found != queues_.end()) {
        found->second.window.restart();
        found->second.restarted = loop_.now();
        wake(loop_.now());
    }
}

/// When it can be sent, if there is room.
milliseconds Outbox::due(const Queue& queue, const Owed& owed) noexcept
{
    return std::max(
        owed.since_ <= queue.restarted ? owed.since_ : owed.due_, queue.window.not_before());
}

/// The one to be sent next. Null: none is due.
Owed* Outbox::next(Queue& queue, Owed::Rank rank, milliseconds now) noexcept
{
    Owed* found = nullptr;
    for (const auto& [place, list] : queue.waiting) {
        if (place.second == rank && !list.empty() && due(queue, list.front()) <= now
            && (found == nullptr || list.front().lapses_ < found->lapses_)) {
            found = &list.front();
        }
    }
    return found;
}

void Outbox::send(Owed& owed, Queue* queue) noexcept
{
    in_flight_.push_back(owed);
    owed.list_ = nullptr;
    if (queue != nullptr) {
        owed.window_ = &queue->window;
        queue->window.sent();
    }
    const Owed::Terms terms = owed.terms();
    add(owed, terms);
    owed.begin_sending();
    owed.routing = { .shard = terms.shard };
    if (!client_.send(owed)) {
        owed.ended(Fate::unsent);
    }
}

void Outbox::send(Queue& queue) noexcept
{
    const milliseconds now = loop_.now();
    for (const Owed::Rank rank : ranks) {
        while (queue.window.has_room(static_cast<std::size_t>(rank))) {
            Owed* const first = next(queue, rank, now);
            if (first == nullptr) {
                break;
            }
            if (!first->lapsed()) {
                send(*first, &queue);
            }
        }
    }
}

void Outbox::fire() noexcept
{
    firing_ = true;
    if (std::exchange(servers_changed_, false)) {
        move_all();
    }
    for (auto& [server, queue] : queues_) {
        send(queue);
    }
    firing_ = false;
    watch();
}

void Outbox::watch() noexcept
{
    const milliseconds now = loop_.now();
    milliseconds next = milliseconds::max();
    for (auto queue = queues_.begin(); queue != queues_.end();) {
        bool waits = false;
        for (const auto& [place, list] : queue->second.waiting) {
            if (!list.empty()) {
                waits = true;
                next = std::min(
                    next,
                    queue->second.window.has_room(static_cast<std::size_t>(place.second))
                        ? due(queue->second, list.front())
                        : now + longest_delay);
            }
        }
        const bool in_use = waits || !queue->second.window.empty();
        if (!in_use) {
            queue->second.window = {};
        }
        queue = in_use || queue->first == 0 ? std::next(queue) : queues_.erase(queue);
    }
    if (next != milliseconds::max()) {
        wake(next);
    }
}

void Outbox::wake(milliseconds at) noexcept
{
    if (!firing_) {
        alarm_.set_no_later_than(std::min(at, loop_.now() + longest_delay));
    }
}

}  // namespace ratelimit::redis

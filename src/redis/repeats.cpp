#include "redis/repeats.h"

#include <algorithm>
#include <exception>

namespace ratelimit::redis {

namespace {

constexpr milliseconds after_refusal{ 10 };  // by a server, before it is tried again
/// The longest time between two looks at what waits. After a stop of this process a timer is
/// extended by up to its delay (DueTime).
constexpr milliseconds longest_delay{ 50 };

}  // namespace

Repeats::Repeats(EventLoop& loop) : loop_(loop), timer_(loop.make_timer([this] { fire(); }))
{
    queues_[0].waiting[0];
}

Repeats::~Repeats()
{
    for (auto& [server, queue] : queues_) {
        for (auto& [group, lists] : queue.waiting) {
            for (List<Repeated>& list : lists) {
                list.each([](Repeated& each) { each.stop_waiting(); });
            }
        }
    }
}

List<Repeated>& Repeats::list_of(std::uint32_t server, const Place& place) noexcept
try {
    return queues_[server].waiting[place.group][place.rank];
} catch (const std::exception&) {
    return queues_[0].waiting.begin()->second[place.rank];  // out of memory
}

void Repeats::add(
    Repeated& what, const Place& place, milliseconds pause, milliseconds left) noexcept
{
    List<Repeated>& list = list_of(what.server(), place);
    if (std::exchange(what.list_, &list) != &list) {
        list.push_back(what);
    }
    what.due_ = loop_.now() + pause;
    what.lapses_ = loop_.now() + left;
    if (place.rank < 2 && loop_.now() <= delays_exit_until_) {
        timer_->cancelable(false);
    }
    wake(what.due_);
}

void Repeats::ended(Repeated& what, RepeatWindow::Ended how) noexcept
{
    if (RepeatWindow* window = std::exchange(what.window_, nullptr)) {
        window->ended(how, loop_.now());
        wake(loop_.now());
    }
}

void Repeats::servers_changed() noexcept
{
    servers_changed_ = true;
    wake(loop_.now());
}

/// Each one to the queue of the server that has it now.
void Repeats::move_all() noexcept
{
    for (auto& [server, queue] : queues_) {
        for (auto& [group, lists] : queue.waiting) {
            for (std::size_t rank = 0; rank < lists.size(); ++rank) {
                lists[rank].each([this, place = Place{ group, rank }](Repeated& each) {
                    List<Repeated>& list = list_of(each.server(), place);
                    if (std::exchange(each.list_, &list) != &list) {
                        list.push_back(each);
                    }
                });
            }
        }
    }
}

void Repeats::restart(std::uint32_t server) noexcept
{
    const auto found = queues_.find(server);
    if (found != queues_.end()) {
        found->second.window.restart();
    }
}

void Repeats::delay_exit(milliseconds time) noexcept
{
    delays_exit_until_ = std::max(delays_exit_until_, loop_.now() + time);
}

/// The one to be sent next. Null: none is due.
Repeated* Repeats::next(Queue& queue, std::size_t rank, milliseconds now) noexcept
{
    Repeated* found = nullptr;
    for (auto& [group, lists] : queue.waiting) {
        const List<Repeated>& list = lists[rank];
        if (!list.empty() && list.front().due_ <= now
            && (found == nullptr || list.front().lapses_ < found->lapses_)) {
            found = &list.front();
        }
    }
    return found;
}

void Repeats::send(Queue& queue) noexcept
{
    const milliseconds now = loop_.now();
    for (std::size_t rank = 0; rank < std::tuple_size_v<Lists>; ++rank) {
        while (queue.window.has_room(rank) && now >= queue.not_before) {
            Repeated* const sent = next(queue, rank, now);
            if (sent == nullptr) {
                break;
            }
            sent->stop_waiting();
            sent->window_ = &queue.window;
            queue.window.sent();
            if (!sent->repeat()) {
                queue.not_before = now + after_refusal;
            }
        }
    }
}

void Repeats::fire() noexcept
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

void Repeats::watch() noexcept
{
    const milliseconds now = loop_.now();
    milliseconds next = milliseconds::max();
    bool delays_exit = false;
    for (auto queue = queues_.begin(); queue != queues_.end();) {
        bool waits = false;
        for (auto& [group, lists] : queue->second.waiting) {
            for (std::size_t rank = 0; rank < lists.size(); ++rank) {
                if (lists[rank].empty()) {
                    continue;
                }
                waits = true;
                delays_exit = delays_exit || rank < 2;
                const milliseconds due = queue->second.window.has_room(rank)
                    ? std::max(lists[rank].front().due_, queue->second.not_before)
                    : now + longest_delay;
                next = std::min(next, due);
            }
        }
        const bool in_use = waits || !queue->second.window.empty();
        if (!in_use) {
            queue->second.window = {};
        }
        queue = in_use || queue->first == 0 ? std::next(queue) : queues_.erase(queue);
    }
    timer_->cancelable(!delays_exit || now > delays_exit_until_);
    if (next != milliseconds::max()) {
        wake(next);
    }
}

void Repeats::wake(milliseconds at) noexcept
{
    if (!firing_ && (!timer_->running() || at < timer_due_)) {
        timer_due_ = at;
        timer_->start(std::clamp(at - loop_.now(), milliseconds{ 1 }, longest_delay));
    }
}

}  // namespace ratelimit::redis

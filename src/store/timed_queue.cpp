#include "store/timed_queue.h"

#include <new>
#include <utility>

namespace ratelimit {

TimedQueue::Head::Head() noexcept
    : own{ nullptr, capacity_of(SharedBlocks::size - offsetof(Head, own)), 0, {} }
{
}

TimedQueue::Head::Head(const Head& other) noexcept : Head()
{
    if (other.first != nullptr) {
        total = other.total;
        hold_s = other.hold_s;
        hold_at = other.hold_at;
        own.used = 1;
        own.items[0] = other.first->items[other.front];
        first = last = &own;
    }
}

std::size_t TimedQueue::bytes_of(std::size_t counts) noexcept
{
    return (counts / capacity_of(SharedBlocks::size) + 2) * SharedBlocks::size;
}

TimedQueue::Iterator TimedQueue::next() const noexcept
{
    Iterator after = head_.marked;
    return after.chunk == nullptr ? begin() : ++after;
}

void TimedQueue::advance() noexcept
{
    head_.marked = next();
    head_.marked_total += (*head_.marked).count;
}

const TimedCount* TimedQueue::last_marked() const noexcept
{
    return head_.marked.chunk == nullptr ? nullptr : &*head_.marked;
}

void TimedQueue::reduce(const Iterator& place, std::int64_t count) noexcept
{
    // The entry is this queue's own. Only iterators do not write to it.
    const_cast<TimedCount&>(*place).count -= count;
}

void TimedQueue::pop_front() noexcept
{
    if (head_.marked.chunk != nullptr) {
        head_.marked_total -= front().count;
        if (last_marked() == &front()) {
            head_.marked = end();
        }
    }
    Chunk* chunk = head_.first;
    if (++head_.front < chunk->used) {
        return;
    }
    head_.first = chunk->next;
    head_.front = 0;
    if (head_.first == nullptr) {
        head_.last = nullptr;
    }
    free(chunk);
}

void TimedQueue::pop_back() noexcept
{
    if (head_.first == head_.last && head_.last->used == head_.front + 1) {
        pop_front();
        return;
    }
    if (--head_.last->used != 0) {
        return;
    }
    Chunk* before = head_.first;
    while (before->next != head_.last) {
        before = before->next;
    }
    before->next = nullptr;
    free(std::exchange(head_.last, before));
}

bool TimedQueue::push_back(const TimedCount& item) noexcept
{
    Chunk* chunk = head_.last;
    if (chunk == nullptr || chunk->used == chunk->capacity) {
        chunk = add_chunk();
        if (chunk == nullptr) {
            return false;
        }
    }
    chunk->items[chunk->used++] = item;
    return true;
}

TimedQueue::Chunk* TimedQueue::add_chunk() noexcept
{
    Chunk* last = head_.last;
    Chunk* chunk = &head_.own;
    if (last != nullptr) {
        void* block = blocks_.allocate();
        if (block == nullptr) {
            return nullptr;
        }
        chunk = new (block) Chunk;
        chunk->capacity = capacity_of(SharedBlocks::size);
    }
    chunk->next = nullptr;
    chunk->used = 0;
    (last == nullptr ? head_.first : last->next) = chunk;
    head_.last = chunk;
    return chunk;
}

void TimedQueue::free(Chunk* chunk) noexcept
{
    if (chunk != &head_.own) {
        blocks_.free(chunk);
    }
}

void TimedQueue::clear() noexcept
{
    Chunk* chunk = head_.first;
    while (chunk != nullptr) {
        free(std::exchange(chunk, chunk->next));
    }
    new (&head_) Head;
}

}  // namespace ratelimit

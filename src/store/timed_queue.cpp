#include "store/timed_queue.h"

#include <utility>

namespace ratelimit {

namespace {

// Sizes that the slab allocator has, so that nothing is lost.
constexpr std::size_t first_chunk_bytes = 128;
constexpr std::size_t next_chunk_bytes = 512;

}  // namespace

std::size_t TimedQueue::bytes_of(std::size_t counts) noexcept
{
    constexpr std::size_t in_a_chunk =
        (next_chunk_bytes - offsetof(Chunk, items)) / sizeof(TimedCount);
    return (counts / in_a_chunk + 2) * next_chunk_bytes;
}

void TimedQueue::pop_front() noexcept
{
    Chunk* chunk = state_.first;
    if (++state_.front < chunk->used) {
        return;
    }
    state_.first = chunk->next;
    state_.front = 0;
    if (state_.first == nullptr) {
        state_.last = nullptr;
    }
    allocator_.free(chunk);
}

bool TimedQueue::push_back(const TimedCount& item) noexcept
{
    Chunk* chunk = state_.last;
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
    const std::size_t bytes = empty() ? first_chunk_bytes : next_chunk_bytes;
    auto* chunk = static_cast<Chunk*>(allocator_.allocate(bytes));
    if (chunk == nullptr) {
        return nullptr;
    }
    chunk->next = nullptr;
    chunk->used = 0;
    chunk->capacity = static_cast<uint32_t>((bytes - offsetof(Chunk, items)) / sizeof(TimedCount));
    (empty() ? state_.first : state_.last->next) = chunk;
    state_.last = chunk;
    return chunk;
}

void TimedQueue::clear() noexcept
{
    Chunk* chunk = state_.first;
    state_ = {};
    while (chunk != nullptr) {
        allocator_.free(std::exchange(chunk, chunk->next));
    }
}

}  // namespace ratelimit

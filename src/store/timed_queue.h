#pragma once

#include "limit/timed_counts.h"
#include "nginx/ngx.h"
#include "store/shared_blocks.h"

namespace ratelimit {

/// A TimedCountQueue in shared memory: a list of chunks. The first chunk is in the same block as
/// the head, because most keys have few entries.
class TimedQueue {
    struct Chunk {
        Chunk* next;
        uint32_t capacity;
        uint32_t used;
        TimedCount items[1];  // capacity of them
    };

public:
    struct Iterator {
        const Chunk* chunk = nullptr;  // null: none, or the end
        uint32_t index = 0;

        const TimedCount& operator*() const noexcept { return chunk->items[index]; }
        Iterator& operator++() noexcept
        {
            if (++index == chunk->used) {
                *this = { chunk->next, 0 };
            }
            return *this;
        }
        bool operator==(const Iterator& other) const noexcept = default;
    };

    /// The state of a queue: one block. A head outside shared memory may be copied to a block while
    /// it has at most one entry.
    struct Head {
        std::int64_t total = 0;  // the sum of all counts; set by the owner of the queue
        Chunk* first = nullptr;
        Chunk* last = nullptr;
        Iterator marked;                // the newest entry that has been marked
        std::int64_t marked_total = 0;  // the sum of the counts up to `marked`
        uint32_t front = 0;             // index of the oldest entry in the first chunk
        // Requests at one time: the longest `hold` of a configuration that counted within it, in
        // seconds, and when that was, in us by the monotonic clock.
        uint32_t hold_s = 0;
        std::int64_t hold_at = 0;
        Chunk own;  // the rest of the block

        Head() noexcept;
        /// Copies a queue of at most one entry.
        Head(const Head& other) noexcept;
        Head& operator=(const Head&) = delete;
    };

    /// The memory, in bytes, of a queue with this number of entries.
    static std::size_t bytes_of(std::size_t counts) noexcept;

    TimedQueue(Head& head, SharedBlocks& blocks) noexcept : head_(head), blocks_(blocks) {}

    bool empty() const noexcept { return head_.first == nullptr; }
    const TimedCount& front() const noexcept { return head_.first->items[head_.front]; }
    TimedCount& back() const noexcept { return head_.last->items[head_.last->used - 1]; }
    Iterator begin() const noexcept { return { head_.first, empty() ? 0 : head_.front }; }
    Iterator end() const noexcept { return {}; }

    Iterator next() const noexcept;
    void advance() noexcept;
    const TimedCount* last_marked() const noexcept;
    std::int64_t marked_total() const noexcept { return head_.marked_total; }
    static void reduce(const Iterator& place, std::int64_t count) noexcept;

    void pop_front() noexcept;
    void pop_back() noexcept;
    bool push_back(const TimedCount& item) noexcept;
    void clear() noexcept;

private:
    static constexpr std::size_t capacity_of(std::size_t chunk_bytes) noexcept
    {
        return (chunk_bytes - offsetof(Chunk, items)) / sizeof(TimedCount);
    }
    Chunk* add_chunk() noexcept;
    void free(Chunk* chunk) noexcept;

    Head& head_;
    SharedBlocks& blocks_;
};

}  // namespace ratelimit

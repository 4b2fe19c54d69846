#pragma once

#include "limit/timed_counts.h"
#include "nginx/ngx.h"
#include "store/shared_blocks.h"

namespace ratelimit {

/// A queue of timed counts in shared memory: a list of chunks, the first of them in the queue's own
/// block, since most keys have few. A TimedCountQueue.
class TimedQueue {
    struct Chunk {
        Chunk* next;
        uint32_t capacity;
        uint32_t used;
        TimedCount items[1];  // capacity of them
    };
    struct Place {
        const Chunk* chunk;  // null: none
        uint32_t index;
    };

public:
    /// What a queue is: one block. It may begin elsewhere, to be moved to one with its first entry.
    struct Head {
        std::int64_t total = 0;  // of all counts: the owner's
        Chunk* first = nullptr;
        Chunk* last = nullptr;
        Place passed{ nullptr, 0 };     // the newest that has been passed
        std::int64_t passed_total = 0;  // of the counts up to there
        uint32_t front = 0;             // index of the oldest in the first chunk
        Chunk own;                      // the block's rest

        Head() noexcept;
        /// Of one that has at most an entry.
        Head(const Head& other) noexcept;
        Head& operator=(const Head&) = delete;
    };

    class Iterator {
    public:
        explicit Iterator(Place place) noexcept : place_(place) {}
        const TimedCount& operator*() const noexcept { return place_.chunk->items[place_.index]; }
        Iterator& operator++() noexcept
        {
            if (++place_.index == place_.chunk->used) {
                place_ = { place_.chunk->next, 0 };
            }
            return *this;
        }
        bool operator==(const Iterator& other) const noexcept
        {
            return place_.chunk == other.place_.chunk && place_.index == other.place_.index;
        }

    private:
        friend class TimedQueue;
        Place place_;
    };

    /// How much memory so many counts need, in bytes.
    static std::size_t bytes_of(std::size_t counts) noexcept;

    TimedQueue(Head& head, SharedBlocks& blocks) noexcept : head_(head), blocks_(blocks) {}

    bool empty() const noexcept { return head_.first == nullptr; }
    const TimedCount& front() const noexcept { return head_.first->items[head_.front]; }
    TimedCount& back() const noexcept { return head_.last->items[head_.last->used - 1]; }
    Iterator begin() const noexcept { return Iterator({ head_.first, empty() ? 0 : head_.front }); }
    Iterator end() const noexcept { return Iterator({ nullptr, 0 }); }

    Iterator next() const noexcept;
    void pass() noexcept;
    const TimedCount* last_passed() const noexcept;
    std::int64_t passed_total() const noexcept { return head_.passed_total; }

    void pop_front() noexcept;
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

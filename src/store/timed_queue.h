#pragma once

#include "limit/timed_counts.h"
#include "nginx/ngx.h"

namespace ratelimit {

/// Gives shared memory out, under the lock that the caller has.
class SharedAllocator {
public:
    virtual ~SharedAllocator() = default;
    virtual void* allocate(std::size_t bytes) noexcept = 0;  // null: there is none
    virtual void free(void* memory) noexcept = 0;
};

/// A queue of timed counts in shared memory: a list of chunks, the first of them small, since most
/// keys have few. A TimedCountQueue.
class TimedQueue {
    struct Chunk {
        Chunk* next;
        uint32_t capacity;
        uint32_t used;
        TimedCount items[1];  // capacity of them
    };

public:
    /// What stays in shared memory; zero bytes are an empty queue.
    struct State {
        Chunk* first;
        Chunk* last;
        uint32_t front;      // index of the oldest in the first chunk
        std::int64_t total;  // of all counts: the owner's
    };

    class Iterator {
    public:
        Iterator(const Chunk* chunk, uint32_t index) noexcept : chunk_(chunk), index_(index) {}
        const TimedCount& operator*() const noexcept { return chunk_->items[index_]; }
        Iterator& operator++() noexcept
        {
            if (++index_ == chunk_->used) {
                chunk_ = chunk_->next;
                index_ = 0;
            }
            return *this;
        }
        bool operator==(const Iterator& other) const noexcept
        {
            return chunk_ == other.chunk_ && index_ == other.index_;
        }

    private:
        const Chunk* chunk_;
        uint32_t index_;
    };

    /// How much memory so many counts need, in bytes.
    static std::size_t bytes_of(std::size_t counts) noexcept;

    TimedQueue(State& state, SharedAllocator& allocator) noexcept
        : state_(state), allocator_(allocator)
    {
    }

    bool empty() const noexcept { return state_.first == nullptr; }
    const TimedCount& front() const noexcept { return state_.first->items[state_.front]; }
    TimedCount& back() const noexcept { return state_.last->items[state_.last->used - 1]; }
    Iterator begin() const noexcept { return { state_.first, empty() ? 0 : state_.front }; }
    Iterator end() const noexcept { return { nullptr, 0 }; }

    void pop_front() noexcept;
    bool push_back(const TimedCount& item) noexcept;
    void clear() noexcept;

private:
    Chunk* add_chunk() noexcept;

    State& state_;
    SharedAllocator& allocator_;
};

}  // namespace ratelimit

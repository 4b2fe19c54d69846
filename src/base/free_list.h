#pragma once

#include <cstddef>
#include <deque>
#include <new>
#include <utility>

namespace ratelimit {

/// Base of a class whose objects live as long as a request or a call. Their memory is reused and
/// never freed, so that requests allocate nothing once the list has grown. For one thread.
template <class Object>
class FromFreeList {
public:
    static void* operator new(std::size_t size)
    {
        static_assert(sizeof(Object) >= sizeof(Free));
        return unused == nullptr ? ::operator new(size) : std::exchange(unused, unused->next);
    }
    static void operator delete(void* memory) noexcept { unused = new (memory) Free{ unused }; }

private:
    struct Free {
        Free* next;
    };
    static inline Free* unused = nullptr;
};

/// Objects that are reused as they were left, and freed with the pool. An Object has the member
/// `Object* next`, which is the pool's until the object is taken and after it was given back.
template <class Object>
class ReusePool {
public:
    /// The one of the process. Never destroyed: that may end while a client still refers to an
    /// object.
    static ReusePool& shared()
    {
        static auto& pool = *new ReusePool;
        return pool;
    }

    /// An object that was given back, or one that is made of `parts`.
    template <class... Parts>
    Object& take(Parts&... parts)
    {
        if (unused_ == nullptr) {
            return all_.emplace_back(parts...);
        }
        return *std::exchange(unused_, unused_->next);
    }
    void give_back(Object& object) noexcept { object.next = std::exchange(unused_, &object); }

private:
    std::deque<Object> all_;  // objects keep their addresses
    Object* unused_ = nullptr;
};

}  // namespace ratelimit

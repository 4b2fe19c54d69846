#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace ratelimit {

/// Base of a final class whose objects live as long as a request. Their memory is reused and never
/// freed, so that requests allocate nothing once the list has grown. For one thread.
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

}  // namespace ratelimit

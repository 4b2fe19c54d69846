// In a file of its own, so that the compiler cannot see these definitions where they are called.
#include "allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

std::atomic<std::size_t> allocations{ 0 };
constexpr std::size_t no_end = std::numeric_limits<std::size_t>::max() / 2;
std::atomic<std::size_t> last{ no_end };  // the number of the last one that has memory

bool fails() noexcept
{
    return ++allocations > last;
}

}  // namespace

void* operator new(std::size_t size)
{
    if (void* memory = fails() ? nullptr : std::malloc(size)) {
        return memory;
    }
    throw std::bad_alloc();
}

void* operator new(std::size_t size, const std::nothrow_t&) noexcept
{
    return fails() ? nullptr : std::malloc(size);
}

void operator delete(void* memory) noexcept
{
    std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept
{
    std::free(memory);
}

namespace ratelimit {

std::size_t allocation_count() noexcept
{
    return allocations;
}

void fail_allocations(bool fail) noexcept
{
    last = fail ? allocations.load() : no_end;
}

void fail_allocations_after(std::size_t more) noexcept
{
    last = allocations + more;
}

}  // namespace ratelimit

// In a file of its own, so that the compiler cannot see these definitions where they are called.
#include "allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> allocations{ 0 };
std::atomic<bool> failing{ false };

}  // namespace

void* operator new(std::size_t size)
{
    ++allocations;
    if (void* memory = failing ? nullptr : std::malloc(size)) {
        return memory;
    }
    throw std::bad_alloc();
}

void* operator new(std::size_t size, const std::nothrow_t&) noexcept
{
    ++allocations;
    return failing ? nullptr : std::malloc(size);
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
    failing = fail;
}

}  // namespace ratelimit

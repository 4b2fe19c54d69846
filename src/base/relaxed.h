#pragma once

#include <atomic>

namespace ratelimit {

// Values in shared memory that one process writes while others read them without its lock. On the
// processors that nginx runs on, these are ordinary loads and stores.

template <class T>
T relaxed(const T& value) noexcept
{
    static_assert(std::atomic_ref<T>::is_always_lock_free);
    // atomic_ref takes no const object, but a load changes nothing.
    return std::atomic_ref(const_cast<T&>(value)).load(std::memory_order_relaxed);
}

template <class T>
void set_relaxed(T& value, T to) noexcept
{
    std::atomic_ref(value).store(to, std::memory_order_relaxed);
}

}  // namespace ratelimit

#pragma once

#include "nginx/ngx.h"

#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace ratelimit::nginx {

/// Makes a T that the pool owns and destroys. Null: out of memory.
template <class T, class... Args>
T* make(ngx_pool_t* pool, Args&&... args)
{
    static_assert(alignof(T) <= NGX_ALIGNMENT);
    ngx_pool_cleanup_t* cleanup = ngx_pool_cleanup_add(pool, sizeof(T));
    if (cleanup == nullptr) {
        return nullptr;
    }
    T* object = new (cleanup->data) T(std::forward<Args>(args)...);
    // Set last: a constructor that throws must leave nothing to destroy.
    cleanup->handler = [](void* data) { static_cast<T*>(data)->~T(); };
    return object;
}

/// Makes `count` default-initialised Ts in the pool. Empty with null data: out of memory. Nothing
/// destroys them, unless `caller_destroys` says that the caller does.
template <class T, bool caller_destroys = false>
std::span<T> make_array(ngx_pool_t* pool, std::size_t count)
{
    static_assert(
        (caller_destroys || std::is_trivially_destructible_v<T>)&&alignof(T) <= NGX_ALIGNMENT);
    // sizeof(T[1]), since clang-tidy reports sizeof(T) as a mistake if T is a pointer.
    void* memory = ngx_palloc(pool, count * sizeof(T[1]));
    if (memory == nullptr) {
        return {};
    }
    return { new (memory) T[count], count };
}

}  // namespace ratelimit::nginx

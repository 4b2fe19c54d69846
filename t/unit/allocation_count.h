#pragma once

#include <cstddef>

namespace ratelimit {

/// How often this program's C++ has allocated memory. (hiredis uses malloc, which is not counted.)
std::size_t allocation_count() noexcept;

}  // namespace ratelimit

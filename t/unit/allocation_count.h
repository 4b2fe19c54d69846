#pragma once

#include <cstddef>

namespace ratelimit {

/// The number of allocations by this program's C++. (hiredis uses malloc, which is not counted.)
std::size_t allocation_count() noexcept;

/// Whether there is no memory left from now on.
void fail_allocations(bool fail) noexcept;
/// There is memory for `more` further allocations.
void fail_allocations_after(std::size_t more) noexcept;

}  // namespace ratelimit

#pragma once

#include <cstdint>

namespace ratelimit {

/// A random number of the system, which no client can guess. Throws if there is none. Not
/// std::random_device: linked statically, that of a new compiler needs glibc 2.36.
std::uint64_t random_number();

}  // namespace ratelimit

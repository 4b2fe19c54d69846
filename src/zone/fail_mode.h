#pragma once

#include <cstdint>

namespace ratelimit {

/// What becomes of a request for which no decision can be had.
enum class FailMode : std::uint8_t { open, closed };

}  // namespace ratelimit

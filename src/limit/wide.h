#pragma once

namespace ratelimit {

/// For the product of a time in microseconds and a number of requests: 366 days and 10^9 requests
/// are 75 bits. Standard C++ has no such integer; __extension__ keeps -Wpedantic quiet.
__extension__ using Wide = __int128;

}  // namespace ratelimit

#pragma once

#include <hiredis/hiredis.h>

#include <string>

namespace ratelimit::redis {

/// The hiredis that the module was compiled with. One that is linked in is this version; the
/// system's may be a later one with the same binary interface.
inline std::string hiredis_version()
{
    return std::to_string(HIREDIS_MAJOR) + '.' + std::to_string(HIREDIS_MINOR) + '.'
        + std::to_string(HIREDIS_PATCH);
}

}  // namespace ratelimit::redis

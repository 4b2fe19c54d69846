#include "zone/zone.h"

namespace ratelimit {

std::string_view Zone::redis_key(std::string_view key, char* out) const noexcept
{
    char* end = out;
    end += key_start.copy(end, key_start.size());
    end += key.copy(end, key.size());
    *end++ = '}';
    return { out, static_cast<std::size_t>(end - out) };
}

}  // namespace ratelimit

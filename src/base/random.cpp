#include "base/random.h"

#include <cerrno>
#include <sys/random.h>
#include <system_error>

namespace ratelimit {

std::uint64_t random_number()
{
    std::uint64_t number = 0;
    // Up to 256 bytes are given whole or not at all: getrandom(2).
    while (getrandom(&number, sizeof(number), 0) < 0) {
        if (errno != EINTR) {
            throw std::system_error(errno, std::generic_category(), "getrandom");
        }
    }
    return number;
}

}  // namespace ratelimit

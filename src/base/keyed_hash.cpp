#include "base/keyed_hash.h"

#include "base/random.h"

namespace ratelimit {

HashSecret random_secret()
{
    return { random_number(), random_number() };
}

}  // namespace ratelimit

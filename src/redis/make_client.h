#pragma once

#include "redis/client.h"

#include <memory>

namespace ratelimit::redis {

/// Makes the client for the topology in the options.
std::unique_ptr<Client> make_client(ClientParts parts);

}  // namespace ratelimit::redis

#pragma once

#include "redis/client.h"

#include <memory>

namespace ratelimit::redis {

/// The kind of client that the options' topology needs.
std::unique_ptr<Client> make_client(ClientParts parts);

}  // namespace ratelimit::redis

#pragma once

#include "redis/call.h"

#include <string_view>

namespace ratelimit::redis {

/// Brings each call to the server that has its keys: one kind for each topology. The contracts are
/// those of Client, which has one.
class Router {
public:
    virtual ~Router() = default;
    virtual void start() = 0;
    virtual bool send(Call& call) = 0;
    virtual void close() noexcept = 0;
    virtual std::uint32_t place_of(std::string_view key) const noexcept = 0;
};

}  // namespace ratelimit::redis

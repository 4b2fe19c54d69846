#pragma once

#include "redis/client.h"

namespace ratelimit::redis {

/// For a client of a process that ends, where events of its servers have no reader.
class NoEvents final : public ClientEvents {
public:
    void server_up(const Endpoint&) noexcept override {}
    void server_down(const Endpoint&, std::string_view) noexcept override {}
    void error_reply(const Endpoint&, std::string_view) noexcept override {}
    void counts_may_be_lost(std::uint32_t) noexcept override {}
    void servers_known(std::string_view) noexcept override {}
    void servers_unknown(std::string_view) noexcept override {}
};

}  // namespace ratelimit::redis

#pragma once

#include "http/ngx_http.h"
#include "redis/client.h"

#include <memory>
#include <string>

namespace ratelimit::http {

/// One ratelimit_redis block, and in a worker its client.
class RedisBlock final : public redis::ClientEvents {
public:
    std::string name;
    redis::ClientOptions options;
    std::string prefix = "rl:";
    bool tls_on = false;
    redis::TlsOptions tls;    // as configured; options.tls is made of it
    std::string server_host;  // of `server`, without the port; empty: a unix socket
    redis::ScriptRegistry scripts;

    /// The client, connecting from the first call on: workers ask when they start, and a process
    /// that runs without them (master_process off, after a reload) at its first request.
    redis::Client& client();

    /// Ends what is on its way and closes the connections.
    void stop() noexcept;

    void server_up(const redis::Endpoint& server) noexcept override;
    void server_down(const redis::Endpoint& server, std::string_view reason) noexcept override;
    void error_reply(const redis::Endpoint& server, std::string_view text) noexcept override;

private:
    std::unique_ptr<redis::Client> client_;
};

/// ratelimit_redis name { ... }
char* redis_block_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

}  // namespace ratelimit::http

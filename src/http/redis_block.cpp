#include "http/redis_block.h"

#include "nginx/hiredis_events.h"
#include "nginx/text.h"

#include <memory>

namespace ratelimit::http {

namespace {

using nginx::borrowed;

constexpr std::size_t shown_text_limit = 256;

}  // namespace

redis::Client& RedisBlock::client()
{
    if (client_ == nullptr) {
        static nginx::NgxLoop loop;
        client_ = std::make_unique<redis::Client>(loop, options, scripts, *this);
        client_->start();
    }
    return *client_;
}

void RedisBlock::stop() noexcept
{
    client_.reset();
}

void RedisBlock::server_up(const redis::Endpoint& server) noexcept
{
    const ngx_str_t block = borrowed(name);
    const ngx_str_t address = borrowed(server.name);
    ngx_log_error(
        NGX_LOG_NOTICE, ngx_cycle->log, 0, "ratelimit: redis \"%V\" at %V is up", &block, &address);
}

void RedisBlock::server_down(const redis::Endpoint& server, std::string_view reason) noexcept
{
    const ngx_str_t block = borrowed(name);
    const ngx_str_t address = borrowed(server.name);
    char line[shown_text_limit];
    const ngx_str_t text = borrowed(nginx::escaped_for_log(reason, line, sizeof(line)));
    ngx_log_error(
        NGX_LOG_ERR, ngx_cycle->log, 0,
        "ratelimit: redis \"%V\" at %V is away, the fail mode decides: %V", &block, &address,
        &text);
}

void RedisBlock::error_reply(const redis::Endpoint& server, std::string_view text) noexcept
{
    const ngx_str_t block = borrowed(name);
    const ngx_str_t address = borrowed(server.name);
    char line[shown_text_limit];
    const ngx_str_t answer = borrowed(nginx::escaped_for_log(text, line, sizeof(line)));
    ngx_log_error(
        NGX_LOG_ERR, ngx_cycle->log, 0, "ratelimit: redis \"%V\" at %V answered: %V", &block,
        &address, &answer);
}

void RedisBlock::servers_known(std::string_view known) noexcept
{
    const ngx_str_t block = borrowed(name);
    char line[shown_text_limit];
    const ngx_str_t text = borrowed(nginx::escaped_for_log(known, line, sizeof(line)));
    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0, "ratelimit: redis \"%V\": %V", &block, &text);
}

void RedisBlock::servers_unknown(std::string_view reason) noexcept
{
    const ngx_str_t block = borrowed(name);
    const bool sentinel = options.topology == redis::Topology::sentinel;
    char line[shown_text_limit];
    const ngx_str_t text = borrowed(nginx::escaped_for_log(reason, line, sizeof(line)));
    ngx_log_error(
        NGX_LOG_ERR, ngx_cycle->log, 0, "ratelimit: redis \"%V\": no %s: %V", &block,
        sentinel ? "sentinel knows where the master is" : "node of the cluster knows its slots",
        &text);
}

}  // namespace ratelimit::http

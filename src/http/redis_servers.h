#pragma once

#include "http/redis_block.h"

#include <span>

namespace ratelimit::http {

/// The parts of a ratelimit_redis block that say where the servers are; as nginx's setters.
/// server address [weight=n];
char* set_server(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values);
/// topology ring | cluster | sentinel master=name;
char* set_topology(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values);
/// What the whole block must have together. Completes the addresses. Null: nothing is wrong.
const char* check_servers(RedisBlock& block);

}  // namespace ratelimit::http

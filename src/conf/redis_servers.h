#pragma once

#include "node/redis_block.h"

#include <span>

namespace ratelimit {

// The setters of a ratelimit_redis block that say where its servers are. They log one line and
// return NGX_CONF_ERROR if a value is invalid.

/// server address [weight=n];
char* set_server(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values);
/// topology ring | cluster | sentinel master=name;
char* set_topology(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values);
/// Checks the servers against the topology, and sets the default port of sentinels. Returns the
/// error; null: there is none.
const char* check_servers(RedisBlock& block);

}  // namespace ratelimit

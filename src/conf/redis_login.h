#pragma once

#include "node/redis_block.h"

#include <span>

namespace ratelimit {

// Setters of directives in a ratelimit_redis block; they return what nginx's setters return. An
// empty value and a placeholder that was not filled in, such as ${REDIS_PASSWORD}, are refused
// with one line, which never has the value.

char* set_username(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values);
char* set_password(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values);
char* set_sentinel_username(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values);
char* set_sentinel_password(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values);

}  // namespace ratelimit

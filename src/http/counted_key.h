#pragma once

#include "http/conf.h"

#include <cstddef>
#include <string_view>

namespace ratelimit::http {

/// Hexadecimal digits of a key's hash.
inline constexpr std::size_t key_hash_length = 32;

/// What Redis, this node's memory, the log and the API know a key by: the key, or its hash where
/// the zone has hash_key or the key is longer than max_key_length. The hash does not depend on the
/// zone, so that zones with one key keep it in one hash slot of a cluster. Empty: out of memory.
std::string_view counted_key(ngx_pool_t* pool, const ZoneConf& zone, std::string_view key) noexcept;

/// Whether a text can be the hash of a key.
bool is_key_hash(std::string_view text) noexcept;

}  // namespace ratelimit::http

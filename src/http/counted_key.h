#pragma once

#include "http/conf.h"

#include <cstddef>
#include <string_view>

namespace ratelimit::http {

/// Hexadecimal digits of a key's hash.
inline constexpr std::size_t key_hash_length = 32;

/// The key as Redis, this node's memory, the log and the API use it: unchanged, or its hash if the
/// zone has hash_key or the key is longer than max_key_length. The hash does not depend on the
/// zone, so zones that count by the same key share one hash slot of a cluster. Empty: out of
/// memory, or OpenSSL failed.
std::string_view counted_key(ngx_pool_t* pool, const ZoneConf& zone, std::string_view key) noexcept;

/// Whether a text can be the hash of a key.
bool is_key_hash(std::string_view text) noexcept;

}  // namespace ratelimit::http

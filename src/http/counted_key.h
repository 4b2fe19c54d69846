#pragma once

#include "conf/conf.h"
#include "limit/key_hash.h"

#include <string_view>

namespace ratelimit::http {

/// The key as Redis, this node's memory, the log and the API use it: unchanged, or its hash if
/// it is_counted_as_hash. The hash does not depend on the zone, so zones that count by the same key
/// share one hash slot of a cluster. Empty: out of memory, or OpenSSL failed.
std::string_view counted_key(ngx_pool_t* pool, const ZoneConf& zone, std::string_view key) noexcept;

}  // namespace ratelimit::http

#pragma once

#include "conf/conf.h"
#include "http/api/path.h"

#include <string_view>

namespace ratelimit::http {

/// The key that a request of the API names.
struct NamedKey {
    std::string_view key;    // as the zone counts it; null data: out of memory, unless `error`
    std::string_view error;  // what was expected instead; empty: nothing
};

/// `path` must outlive the result: only what the pool does not have is taken from it.
NamedKey named_key(ngx_pool_t* pool, const ZoneConf& zone, const ApiPath& path);

}  // namespace ratelimit::http

#pragma once

#include "conf/conf.h"

namespace ratelimit {

/// The tag of a zone's memory: the same address for the same algorithm, key and hash_key. On a
/// reload nginx keeps memory of the same name only if its tag is the same; otherwise it makes new
/// memory, and the old workers keep theirs.
void* memory_tag(const ZoneConf& conf);

/// Warns if a reload does not keep this zone's memory.
void warn_of_changed_tag(ngx_conf_t* cf, const ngx_shm_zone_t& memory);

}  // namespace ratelimit

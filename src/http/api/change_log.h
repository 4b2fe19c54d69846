#pragma once

#include "conf/conf.h"
#include "fleet/override_text.h"

#include <string>
#include <string_view>

namespace ratelimit::http {

/// Who makes the request: the node, the client's address and, with user=, the user.
std::string author(ngx_http_request_t* r);

/// Bytes for a log line or JSON, as nginx::escaped_for_log.
std::string escaped(std::string_view bytes);

/// Logs a change of an override or a key, one notice line. `what`: such as "override set". An empty
/// `key`: of the whole zone. `set`: null unless an override was set.
void log_change(
    ngx_http_request_t* r, std::string_view what, const ZoneConf& zone, std::string_view key,
    const fleet::StoredOverride* set = nullptr);

}  // namespace ratelimit::http

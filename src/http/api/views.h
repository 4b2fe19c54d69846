#pragma once

#include "http/conf.h"

#include <string>
#include <string_view>

namespace ratelimit::http {

/// JSON of the API: this node and its zones, or one of them; its Redis blocks and their servers.
std::string zones_json(const MainConf& conf, bool writable);
std::string zone_json(const ZoneConf& zone);
std::string redis_json(const MainConf& conf);

/// The same as numbers, in Prometheus's text format 0.0.4.
inline constexpr std::string_view metrics_type = "text/plain; version=0.0.4; charset=utf-8";
std::string metrics_text(MainConf& conf);

}  // namespace ratelimit::http

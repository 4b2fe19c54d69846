#pragma once

#include "conf/conf.h"

#include <string>
#include <string_view>

namespace ratelimit::http {

/// The name of this node: node= of ratelimit_fleet, or else the host's name.
std::string_view node_name(const MainConf& conf) noexcept;

/// The API's JSON: this node with its zones, one zone, or the Redis blocks with their servers.
std::string zones_json(const MainConf& conf, bool writable);
std::string zone_json(const ZoneConf& zone);
std::string redis_json(const MainConf& conf);

/// What a zone, or with an empty name the node, passed and refused over time: all steps that end
/// after `since`, in seconds since the epoch.
std::string history_json(std::string_view zone, const ZoneMemory& memory, std::int64_t since);

/// All metrics, in Prometheus's text format 0.0.4.
inline constexpr std::string_view metrics_type = "text/plain; version=0.0.4; charset=utf-8";
std::string metrics_text(MainConf& conf);

}  // namespace ratelimit::http

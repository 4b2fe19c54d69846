#pragma once

#include "check/remote_limit.h"
#include "http/ngx_http.h"
#include "http/redis_block.h"
#include "zone/zone.h"

#include <deque>
#include <optional>
#include <string>
#include <vector>

extern "C" ngx_module_t ngx_http_ratelimit_module;

namespace ratelimit::http {

/// Where in the configuration something stands, for errors that are found only when all of it has
/// been read.
struct ConfPosition {
    ngx_str_t file{};
    ngx_uint_t line = 0;
};

ConfPosition position_of(const ngx_conf_t* cf) noexcept;

/// One ratelimit_zone.
struct ZoneConf {
    Zone zone;
    ngx_http_complex_value_t key{};
    bool hash_key = false;  // keys are known by their hash everywhere
    bool variable_rate = false;
    ngx_http_complex_value_t rate{};  // when variable_rate
    std::optional<std::string> redis_name;
    bool needs_redis = false;          // for a parameter that it has
    RedisBlock* redis = nullptr;       // null: counted in this node's memory
    std::optional<std::int64_t> cost;  // of the limits resolved so far, where all have the same
    CheckScripts peek;                 // what the API asks for a key's state
    std::string key_text;
    std::string rate_text;
    ConfPosition position;
    time_t rate_complaint = 0;  // when this worker last logged a malformed rate
    time_t cost_complaint = 0;
};

/// One `ratelimit zone=...`.
struct LimitConf {
    std::string zone_name;
    ZoneConf* zone = nullptr;  // found in merge
    std::optional<std::int64_t> burst;
    bool nodelay = false;
    std::optional<std::int64_t> delay;
    bool variable_cost = false;
    std::int64_t cost = 1;
    ngx_http_complex_value_t cost_value{};  // when variable_cost
    bool shadow = false;
    CheckScripts scripts;  // of its zone's Redis
    ConfPosition position;
};

/// All limits of a location: one decision.
struct LimitSet {
    std::vector<LimitConf> limits;
    bool resolved = false;  // zones found and scripts known
};

/// Bits of ratelimit_headers.
enum HeaderSets : ngx_uint_t {
    headers_off = 1,  // stands alone
    headers_x_ratelimit = 2,
    headers_draft = 4,
    headers_legacy = 8,
};

/// Location configuration: plain, so that nginx can set it by offset.
struct LocationConf {
    LimitSet* limits;  // null: inherited or none; empty: switched off
    ngx_uint_t fail_mode;
    ngx_uint_t fail_status;
    ngx_uint_t refuse_status;
    ngx_uint_t headers;
    ngx_uint_t dry_run;
    ngx_uint_t log_level;
    ngx_uint_t delay_log_level;
    ngx_uint_t phase;
    ngx_uint_t api;  // ApiMode; of this location only
};

/// ratelimit_api.
enum ApiMode : ngx_uint_t { api_none, api_reads, api_writes };

enum Phase : ngx_uint_t { phase_access, phase_preaccess };

/// What nginx sets by offset in the main configuration.
struct MainSettings {
    ngx_uint_t ipv6_prefix;
};

struct MainConf : MainSettings {
    std::deque<RedisBlock> redis;  // deques: what is in them keeps its place
    std::deque<ZoneConf> zones;
    ngx_shm_zone_t* redis_counters = nullptr;  // null: there is no Redis
    bool has_api = false;

    ZoneConf* zone_named(std::string_view name) noexcept;
    RedisBlock* redis_named(std::string_view name) noexcept;
};

MainConf& main_conf(ngx_conf_t* cf) noexcept;
MainConf& main_conf(ngx_http_request_t* r) noexcept;
/// Null when this configuration has no http block.
MainConf* main_conf(ngx_cycle_t* cycle) noexcept;
LocationConf& location_conf(ngx_http_request_t* r) noexcept;

void* create_main_conf(ngx_conf_t* cf) noexcept;
char* init_main_conf(ngx_conf_t* cf, void* conf) noexcept;
void* create_location_conf(ngx_conf_t* cf) noexcept;
char* merge_location_conf(ngx_conf_t* cf, void* parent, void* child) noexcept;

}  // namespace ratelimit::http

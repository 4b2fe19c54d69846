#pragma once

#include "check/remote_limit.h"
#include "limit/grammar.h"
#include "limit/rate_headers.h"
#include "nginx/ngx_http.h"
#include "node/fleet_member.h"
#include "node/redis_block.h"
#include "zone/held_requests.h"
#include "zone/zone.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

extern "C" ngx_module_t ngx_http_ratelimit_module;

namespace ratelimit {

/// A line of the configuration, for errors that are found only after all of it has been read.
struct ConfPosition {
    ngx_str_t file{};
    ngx_uint_t line = 0;
};

ConfPosition position_of(const ngx_conf_t* cf) noexcept;

/// One ratelimit_zone.
struct ZoneConf {
    Zone zone;
    ngx_http_complex_value_t key{};
    bool hash_key = false;               // keys are replaced by their hash (counted_key)
    ngx_http_complex_value_t rate{};     // when variable_rate()
    std::shared_ptr<TimeZone> calendar;  // of zone.policy; null: no calendar=
    std::string start_text;              // of start=, with a variable; empty: zone.policy.start_day
    ngx_http_complex_value_t start{};    // when start_text is not empty
    std::optional<std::string> redis_name;
    std::string redis_parameter;       // the last parameter that needs Redis; empty: none
    RedisBlock* redis = nullptr;       // null: counted in this node's memory
    std::optional<std::int64_t> cost;  // of the latest limit, above 0: do costs differ?
    /// Whether limits use it, and whether any of them has the fail mode `local`.
    enum class Alone : std::uint8_t { unused, none, some } alone = Alone::unused;
    CheckScripts peek;  // read a key's state for the API
    std::string key_text;
    std::string rate_text;
    ConfPosition position;
    time_t bad_rate_logged = 0;  // when this worker last logged a malformed rate
    time_t bad_cost_logged = 0;
    time_t bad_charge_logged = 0;
    time_t bad_reserve_logged = 0;
    time_t bad_start_logged = 0;
    std::unique_ptr<HeldRequests> held;  // of this worker; null: none yet

    bool variable_rate() const noexcept { return zone.policy.rate.quota == 0; }

    /// The units that this worker's requests hold, in a zone with concurrency=. Made, as those in
    /// Redis, when a worker starts or, after a reload with master_process off, at the first
    /// request.
    HeldRequests& holds();
    /// The same, in Redis.
    Holdings& holdings();
};

/// One `ratelimit zone=...`.
struct LimitConf : LimitSettings {
    ZoneConf* zone = nullptr;                  // found in merge
    Policy policy;                             // of the zone, with this limit's burst
    std::uint64_t policy_hash = 0;             // of that; 0: requests have policies of their own
    QuotaUnit unit = QuotaUnit::requests;      // of the cost
    ngx_http_complex_value_t cost_value{};     // when variable_cost()
    ngx_http_complex_value_t charge{};         // when charges()
    ngx_http_complex_value_t reserve_value{};  // when its text is not empty
    CheckScripts scripts;                      // of its zone's Redis
    ConfPosition position;

    bool variable_cost() const noexcept { return !cost_text.empty(); }
    bool charges() const noexcept { return !charge_text.empty(); }
    /// Whether an override alone changes its policy.
    bool one_policy() const noexcept
    {
        return !zone->variable_rate() && zone->calendar == nullptr && !has_reserve();
    }
};

/// The limits of a location, which are decided together.
struct LimitSet {
    std::vector<LimitConf> limits;
    std::deque<SequenceScripts> sequences;  // of the limits' scripts
    /// RateLimit-Policy of a request that all limits apply to, by their configured policies. Empty:
    /// a limit has no such policy, or all are shadows.
    std::string policy_header;
    bool charges = false;   // one of them has charge=
    bool resolved = false;  // zones found and scripts known
};

/// One ratelimit_usage.
struct UsageConf {
    std::string_view variable;  // its name
    std::string_view path;
    ConfPosition position;
    bool limited = false;  // a location with a limit has it
};

/// Bits of ratelimit_headers.
enum HeaderSets : ngx_uint_t {
    headers_off = 1,  // excludes the others
    headers_x_ratelimit = 2,
    headers_draft = 4,
    headers_legacy = 8,
};

/// Location configuration. nginx sets its members by offset.
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
    ngx_uint_t problem_details;
    ngx_uint_t retry_jitter;             // percent
    UsageConf* usage;                    // null: none
    ngx_uint_t check;                    // CheckMode; of this location only
    ngx_uint_t api;                      // ApiMode; of this location only
    ConfPosition answers_at;             // of ratelimit_check or ratelimit_api
    ngx_http_complex_value_t* api_user;  // null: none
};

/// ratelimit_api.
enum ApiMode : ngx_uint_t { api_none, api_reads, api_writes };

/// ratelimit_check: with `check_peeks` nothing is counted.
enum CheckMode : ngx_uint_t { check_none, check_counts, check_peeks };

enum Phase : ngx_uint_t { phase_access, phase_preaccess };

/// Functions of higher rooms that directives give to nginx.
struct Handlers {
    ngx_http_handler_pt api = nullptr;         // the content of locations with ratelimit_api
    ngx_http_handler_pt check = nullptr;       // and with ratelimit_check
    ngx_http_get_variable_pt usage = nullptr;  // the value of ratelimit_usage's variable
};

/// The members of the main configuration that nginx sets by offset.
struct MainSettings {
    ngx_uint_t ipv6_prefix;
};

struct MainConf : MainSettings {
    std::deque<RedisBlock> redis;  // deques: elements keep their addresses
    std::deque<ZoneConf> zones;
    /// Counts the requests of this node that have limits, as a zone does; null: there are no zones.
    ngx_shm_zone_t* requests = nullptr;
    std::deque<UsageConf> usages;
    std::unique_ptr<FleetMember> fleet;  // null: no ratelimit_fleet
    ConfPosition fleet_position;
    bool has_api = false;
    Handlers handlers;

    ZoneConf* zone_named(std::string_view name) noexcept;
    RedisBlock* redis_named(std::string_view name) noexcept;
};

MainConf& main_conf(ngx_conf_t* cf) noexcept;
MainConf& main_conf(ngx_http_request_t* r) noexcept;
/// Null when this configuration has no http block.
MainConf* main_conf(ngx_cycle_t* cycle) noexcept;
inline LocationConf& location_conf(ngx_http_request_t* r) noexcept
{
    return *static_cast<LocationConf*>(ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module));
}

}  // namespace ratelimit

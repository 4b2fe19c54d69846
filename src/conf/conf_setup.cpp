#include "conf/conf_setup.h"

#include "check/script_text.h"
#include "conf/api_directive.h"
#include "conf/check_directive.h"
#include "conf/conf.h"
#include "conf/conf_error.h"
#include "conf/limit_directive.h"
#include "conf/usage_directive.h"
#include "limit/fail_mode.h"
#include "nginx/guarded.h"
#include "nginx/pool.h"
#include "nginx/text.h"

#include <algorithm>

namespace ratelimit {

namespace {

using nginx::borrowed;

char* zone_error(ngx_conf_t* cf, const ZoneConf& zone, std::string_view error)
{
    const ngx_str_t name = borrowed(zone.zone.name);
    const ngx_str_t text = borrowed(error);
    ngx_log_error(
        NGX_LOG_EMERG, cf->log, 0, "\"ratelimit_zone\" \"%V\": %V in %V:%ui", &name, &text,
        &zone.position.file, zone.position.line);
    return failed();
}

/// Sets the zone's ratelimit_redis block: the one that `redis=` names, or the only one. Without any
/// block the zone counts in its shared memory.
char* find_redis(ngx_conf_t* cf, MainConf& main, ZoneConf& zone)
{
    if (zone.redis_name) {
        zone.redis = main.redis_named(*zone.redis_name);
        if (zone.redis == nullptr) {
            return zone_error(
                cf, zone,
                "invalid \"redis=" + *zone.redis_name
                    + "\", expected the name of a \"ratelimit_redis\"");
        }
    } else if (main.redis.size() == 1) {
        zone.redis = &main.redis.front();
    } else if (!main.redis.empty()) {
        return zone_error(cf, zone, "several \"ratelimit_redis\" blocks, expected \"redis=name\"");
    }
    if (zone.redis != nullptr) {
        zone.redis->zones.push_back(&zone.zone);
        zone.zone.key_start = zone.redis->prefix + zone.zone.name + ":{";
        zone.zone.storage_id =
            std::hash<std::string>{}(zone.redis->storage() + zone.zone.key_start);
        return NGX_CONF_OK;
    }
    if (!zone.redis_parameter.empty()) {
        return zone_error(
            cf, zone,
            "invalid \"" + zone.redis_parameter
                + "\", expected only with a \"ratelimit_redis\" block");
    }
    if (!zone.variable_rate()
        && LocalLimiter::largest_key(zone.zone.policy) > zone.zone.shared->shm.size / 2) {
        return zone_error(cf, zone, "size is too small for one key of this rate and algorithm");
    }
    return NGX_CONF_OK;
}

/// Whether the rewrite module's first code of this level is `return`, outside of any `if`.
bool returns_always(ngx_conf_t* cf) noexcept
{
    const auto* context = static_cast<const ngx_http_conf_ctx_t*>(cf->ctx);
    for (ngx_module_t** module = cf->cycle->modules; *module != nullptr; ++module) {
        if (std::string_view((*module)->name) != "ngx_http_rewrite_module") {
            continue;
        }
        // The configuration begins with the array of codes; each code begins with its function.
        const auto* codes = *static_cast<ngx_array_t**>(context->loc_conf[(*module)->ctx_index]);
        return codes != nullptr && codes->nelts != 0
            && *static_cast<ngx_http_script_code_pt*>(codes->elts) == ngx_http_script_return_code;
    }
    return false;
}

void warn_of_return(ngx_conf_t* cf, const LimitSet& own) noexcept
{
    if (own.limits.empty() || !returns_always(cf)) {
        return;
    }
    const LimitConf& limit = own.limits.front();
    const ngx_str_t name = borrowed(limit.zone_name);
    ngx_log_error(
        NGX_LOG_WARN, cf->log, 0,
        "\"ratelimit zone=%V\": \"return\" of the same block answers before any limit in %V:%ui",
        &name, &limit.position.file, limit.position.line);
}

void note_fail_mode(const LocationConf& conf) noexcept
{
    using Alone = ZoneConf::Alone;
    const bool alone = conf.fail_mode == static_cast<ngx_uint_t>(FailMode::local);
    for (const LimitConf& limit : conf.limits->limits) {
        limit.zone->alone = std::max(limit.zone->alone, alone ? Alone::some : Alone::none);
    }
}

char* fleet_error(ngx_conf_t* cf, const MainConf& main, std::string_view error)
{
    const ngx_str_t text = borrowed(error);
    ngx_log_error(
        NGX_LOG_EMERG, cf->log, 0, "\"ratelimit_fleet\": %V in %V:%ui", &text,
        &main.fleet_position.file, main.fleet_position.line);
    return failed();
}

/// Sets the fleet's ratelimit_redis block, and its memory in all zones.
char* set_up_fleet(ngx_conf_t* cf, MainConf& main)
{
    for (const ZoneConf& zone : main.zones) {
        if (zone.zone.nodes == 0 && main.fleet == nullptr) {
            return zone_error(
                cf, zone, "invalid \"nodes=auto\", expected only with \"ratelimit_fleet\"");
        }
    }
    if (main.fleet == nullptr) {
        return NGX_CONF_OK;
    }
    FleetMember& fleet = *main.fleet;
    RedisBlock* redis = nullptr;
    if (fleet.redis_name) {
        redis = main.redis_named(*fleet.redis_name);
        if (redis == nullptr) {
            return fleet_error(
                cf, main,
                "invalid \"redis=" + *fleet.redis_name
                    + "\", expected the name of a \"ratelimit_redis\"");
        }
    } else if (main.redis.size() == 1) {
        redis = &main.redis.front();
    } else {
        return fleet_error(
            cf, main,
            main.redis.empty() ? "no \"ratelimit_redis\" block, expected one"
                               : "several \"ratelimit_redis\" blocks, expected \"redis=name\"");
    }
    fleet.set_up(*redis, main.has_api);
    for (ZoneConf& zone : main.zones) {
        zone.zone.fleet = fleet.memory;
        fleet.zones.push_back(&zone.zone);
    }
    return NGX_CONF_OK;
}

/// Makes the resolvers for names of servers.
bool make_resolvers(ngx_conf_t* cf, MainConf& main)
{
    const auto* core = static_cast<const ngx_http_core_loc_conf_t*>(
        ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module));
    constexpr ngx_msec_t default_timeout = 30'000;
    ngx_msec_t timeout = core->resolver_timeout;  // nginx sets its default later
    ngx_conf_init_msec_value(timeout, default_timeout);
    nginx::Resolvers resolvers;
    if (!nginx::make_resolvers(cf, core->resolver, timeout, resolvers)) {
        return false;
    }
    for (RedisBlock& block : main.redis) {
        block.resolvers = resolvers;
    }
    return true;
}

/// Adds the memory for the Redis counters of all workers. Its name has a space, so that it differs
/// from every zone's.
char* add_counters(ngx_conf_t* cf, MainConf& main)
{
    static char tag;
    static ngx_str_t name = ngx_string("ratelimit redis");
    auto* const counters = ngx_shared_memory_add(cf, &name, RedisCounters::memory_size, &tag);
    if (counters == nullptr || !make_resolvers(cf, main)) {
        return failed();
    }
    counters->init = RedisCounters::init;
    for (RedisBlock& block : main.redis) {
        block.counters = counters;
    }
    return NGX_CONF_OK;
}

/// Adds the memory that counts this node's requests: the smallest zone that keeps a whole history.
char* add_requests(ngx_conf_t* cf, MainConf& main)
{
    static char tag;
    static ngx_str_t name = ngx_string("ratelimit requests");
    const std::size_t size = std::max<std::size_t>(History::all_series_from, 8 * ngx_pagesize);
    main.requests = ngx_shared_memory_add(cf, &name, size, &tag);
    if (main.requests == nullptr) {
        return failed();
    }
    main.requests->init = ZoneMemory::init;
    return NGX_CONF_OK;
}

}  // namespace

void* create_main_conf(ngx_conf_t* cf, const Handlers& handlers) noexcept
{
    return nginx::guarded(cf->log, static_cast<void*>(nullptr), [cf, &handlers]() -> void* {
        auto* conf = nginx::make<MainConf>(cf->pool);
        if (conf == nullptr) {
            return nullptr;
        }
        conf->ipv6_prefix = NGX_CONF_UNSET_UINT;
        conf->handlers = handlers;
        return static_cast<MainSettings*>(conf);
    });
}

char* init_main_conf(ngx_conf_t* cf, void*) noexcept
{
    MainConf& main = main_conf(cf);
    ngx_conf_init_uint_value(main.ipv6_prefix, 64);

    return nginx::guarded(cf->log, failed(), [&]() -> char* {
        for (ZoneConf& zone : main.zones) {
            for (const std::string* text : { &zone.key_text, &zone.rate_text }) {
                if (reads_usage(main, *text)) {
                    return zone_error(
                        cf, zone,
                        "invalid \"" + *text + "\", expected " + std::string(known_with_response));
                }
            }
            zone.zone.addresses =
                address_form(zone.key_text, static_cast<std::uint8_t>(main.ipv6_prefix));
            if (char* result = find_redis(cf, main, zone); result != NGX_CONF_OK) {
                return result;
            }
        }
        if (char* result = set_up_fleet(cf, main); result != NGX_CONF_OK) {
            return result;
        }
        for (ZoneConf& zone : main.zones) {
            if (main.has_api && zone.redis != nullptr) {
                const Algorithm algorithm = zone.zone.policy.algorithm;
                zone.peek.several = zone.redis->scripts.add(peek_script({ &algorithm, 1 }));
            }
        }
        if (char* result = main.zones.empty() ? NGX_CONF_OK : add_requests(cf, main);
            result != NGX_CONF_OK) {
            return result;
        }
        return main.redis.empty() ? NGX_CONF_OK : add_counters(cf, main);
    });
}

void* create_location_conf(ngx_conf_t* cf) noexcept
{
    auto* conf = static_cast<LocationConf*>(ngx_pcalloc(cf->pool, sizeof(LocationConf)));
    if (conf == nullptr) {
        return nullptr;
    }
    conf->limits = static_cast<LimitSet*>(NGX_CONF_UNSET_PTR);
    conf->fail_mode = NGX_CONF_UNSET_UINT;
    conf->fail_status = NGX_CONF_UNSET_UINT;
    conf->refuse_status = NGX_CONF_UNSET_UINT;
    conf->headers = NGX_CONF_UNSET_UINT;
    conf->dry_run = NGX_CONF_UNSET_UINT;
    conf->log_level = NGX_CONF_UNSET_UINT;
    conf->phase = NGX_CONF_UNSET_UINT;
    conf->problem_details = NGX_CONF_UNSET_UINT;
    conf->retry_jitter = NGX_CONF_UNSET_UINT;
    conf->usage = static_cast<UsageConf*>(NGX_CONF_UNSET_PTR);
    return conf;
}

char* merge_location_conf(ngx_conf_t* cf, void* parent, void* child) noexcept
{
    auto& above = *static_cast<LocationConf*>(parent);
    auto& conf = *static_cast<LocationConf*>(child);

    const bool own_api = conf.api != api_none;
    const bool own_check = conf.check != check_none;  // `if` in its location inherits all
    if (!merge_api(cf, above, conf) || !merge_check(cf, above, conf)) {
        return failed();
    }
    if (conf.limits != NGX_CONF_UNSET_PTR) {
        warn_of_return(cf, *conf.limits);
    } else if (own_api) {
        conf.limits = nullptr;  // who is refused can still be looked up
    }
    ngx_conf_merge_ptr_value(conf.limits, above.limits, nullptr);
    ngx_conf_merge_uint_value(
        conf.fail_mode, above.fail_mode, static_cast<ngx_uint_t>(FailMode::open));
    ngx_conf_merge_uint_value(conf.fail_status, above.fail_status, NGX_HTTP_SERVICE_UNAVAILABLE);
    ngx_conf_merge_uint_value(conf.refuse_status, above.refuse_status, NGX_HTTP_TOO_MANY_REQUESTS);
    ngx_conf_merge_uint_value(conf.headers, above.headers, headers_x_ratelimit);
    ngx_conf_merge_uint_value(conf.dry_run, above.dry_run, 0);
    ngx_conf_merge_uint_value(conf.log_level, above.log_level, NGX_LOG_ERR);
    ngx_conf_merge_uint_value(conf.phase, above.phase, phase_access);
    if (own_check) {
        ngx_conf_init_uint_value(conf.problem_details, 1);
    }
    ngx_conf_merge_uint_value(conf.problem_details, above.problem_details, 0);
    ngx_conf_merge_uint_value(conf.retry_jitter, above.retry_jitter, 0);
    ngx_conf_merge_ptr_value(conf.usage, above.usage, nullptr);
    if (conf.usage != nullptr && conf.limits != nullptr && !conf.limits->limits.empty()) {
        conf.usage->limited = true;
    }
    conf.delay_log_level =
        conf.log_level == NGX_LOG_INFO ? ngx_uint_t{ NGX_LOG_INFO } : conf.log_level + 1;

    return nginx::guarded(cf->log, failed(), [&] {
        if (conf.limits != nullptr) {
            if (resolve(cf, main_conf(cf), *conf.limits) != NGX_CONF_OK) {
                return failed();
            }
            note_fail_mode(conf);
        }
        return can_check(cf, conf) ? NGX_CONF_OK : failed();
    });
}

void warn_of_nodes(ngx_conf_t* cf) noexcept
{
    for (const ZoneConf& zone : main_conf(cf).zones) {
        if (zone.zone.nodes != 1 && zone.alone == ZoneConf::Alone::none) {
            const ngx_str_t name = borrowed(zone.zone.name);
            ngx_log_error(
                NGX_LOG_WARN, cf->log, 0,
                "\"ratelimit_zone\" \"%V\": \"nodes=\" changes nothing, since no limit of it has "
                "\"ratelimit_fail_mode local\" in %V:%ui",
                &name, &zone.position.file, zone.position.line);
        }
    }
}

}  // namespace ratelimit

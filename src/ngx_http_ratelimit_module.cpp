// The module's definition, and its callbacks for the configuration and for each process.

#include "conf/commands.h"
#include "conf/conf.h"
#include "conf/conf_setup.h"
#include "conf/usage_directive.h"
#include "http/access_handler.h"
#include "http/api/api_handler.h"
#include "http/api/check_handler.h"
#include "http/client_gone.h"
#include "http/decision_count.h"
#include "http/header_filter.h"
#include "http/node_figures.h"
#include "http/refusal_log.h"
#include "http/settle_charges.h"
#include "http/usage_filter.h"
#include "http/variables.h"
#include "nginx/guarded.h"
#include "nginx/text.h"
#include "nginx/timer.h"

#include <algorithm>
#include <memory>

namespace ratelimit::http {

namespace {

constexpr milliseconds second{ 1000 };

std::unique_ptr<nginx::NgxTimer> second_timer;

/// Adds a handler that runs after those of its phase that are known so far. nginx runs a phase's
/// handlers from the last to the first.
bool run_last(ngx_array_t& handlers, ngx_http_handler_pt handler) noexcept
{
    if (ngx_array_push(&handlers) == nullptr) {
        return false;
    }
    auto* all = static_cast<ngx_http_handler_pt*>(handlers.elts);
    ngx_memmove(all + 1, all, (handlers.nelts - 1) * sizeof(*all));
    all[0] = handler;
    return true;
}

/// Adds a handler that runs before those of its phase that are known so far.
bool run_first(ngx_array_t& handlers, ngx_http_handler_pt handler) noexcept
{
    auto* slot = static_cast<ngx_http_handler_pt*>(ngx_array_push(&handlers));
    if (slot == nullptr) {
        return false;
    }
    *slot = handler;
    return true;
}

ngx_int_t postconfiguration(ngx_conf_t* cf) noexcept
{
    auto* core = static_cast<ngx_http_core_main_conf_t*>(
        ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module));
    auto* phases = core->phases;

    // All of them, since each location has its own ratelimit_phase.
    const bool installed =
        // After realip, which sets the client's address in this phase, too.
        run_last(phases[NGX_HTTP_PREACCESS_PHASE].handlers, preaccess_handler)
        // After authentication, whose results can be keys.
        && run_last(phases[NGX_HTTP_ACCESS_PHASE].handlers, access_handler)
        // Before try_files and mirror.
        && run_first(phases[NGX_HTTP_PRECONTENT_PHASE].handlers, precontent_handler)
        && run_last(phases[NGX_HTTP_LOG_PHASE].handlers, settle_charges);
    if (!installed || check_variables(cf) != NGX_OK || !usages_have_limits(cf)) {
        return NGX_ERROR;
    }
    warn_of_nodes(cf);
    install_header_filter();
    install_body_filter();
    install_usage_filter();
    return NGX_OK;
}

void each_second() noexcept
{
    if (MainConf* conf = main_conf(const_cast<ngx_cycle_t*>(ngx_cycle))) {
        log_ended(*conf);
        for (const ZoneConf& zone : conf->zones) {
            roll_history_each_second(zone.zone.memory());
        }
        if (conf->requests != nullptr) {
            roll_history_each_second(ZoneMemory(*conf->requests));
        }
        for (RedisBlock& block : conf->redis) {
            block.report();
            if (ngx_exiting) {
                // A long response may keep an exiting worker alive; it seldom needs Redis.
                block.rest();
            } else {
                block.probe();
            }
        }
    }
    if (second_timer != nullptr) {
        second_timer->start(second);
    }
}

/// Where a warning about the configuration is seen: error_log, or if its level (by default error)
/// leaves it out, the log of nginx's own warnings, such as the terminal of nginx -t.
ngx_log_t* log_of_warnings(const ngx_cycle_t& cycle) noexcept
{
    return cycle.log->log_level >= NGX_LOG_WARN ? cycle.log : ngx_cycle->log;
}

/// Warns if nginx's timers are coarser than a time that a block of Redis or a zone has. Here, since
/// timer_resolution may stand behind http {}.
void warn_of_resolution(const ngx_cycle_t& cycle, const MainConf& conf) noexcept
{
    const auto* core =
        reinterpret_cast<const ngx_core_conf_t*>(ngx_get_conf(cycle.conf_ctx, ngx_core_module));
    const auto is_longer_than = [core](auto time) {
        return core->timer_resolution
            > static_cast<ngx_msec_t>(std::chrono::duration_cast<milliseconds>(time).count());
    };
    const auto least = std::ranges::min_element(conf.redis, {}, &RedisBlock::least_timeout);
    if (least != conf.redis.end() && is_longer_than(least->least_timeout())) {
        const ngx_str_t name = nginx::borrowed(least->name);
        ngx_log_error(
            NGX_LOG_WARN, log_of_warnings(cycle), 0,
            "ratelimit: \"timer_resolution\" of %M ms is longer than the %M ms of redis \"%V\": "
            "its times end up to that much later",
            core->timer_resolution, static_cast<ngx_msec_t>(least->least_timeout().count()), &name);
    }
    const auto zone = std::ranges::find_if(conf.zones, [&](const ZoneConf& one) {
        const Policy& policy = one.zone.policy;
        return counts_at_one_time(policy.algorithm) && is_longer_than(policy.rate.window / 4);
    });
    if (zone != conf.zones.end()) {
        const ngx_str_t name = nginx::borrowed(zone->zone.name);
        ngx_log_error(
            NGX_LOG_WARN, log_of_warnings(cycle), 0,
            "ratelimit: \"timer_resolution\" of %M ms is longer than a quarter of \"hold=\" of "
            "zone \"%V\": more requests of a key may run at one time than it allows",
            core->timer_resolution, &name);
    }
}

/// Warns if connections to Redis take more than half of a worker's connections. Does not fail:
/// nginx would end its master.
ngx_int_t init_module(ngx_cycle_t* cycle) noexcept
{
    MainConf* conf = main_conf(cycle);
    if (conf == nullptr) {
        return NGX_OK;
    }
    std::size_t connections = 0;
    for (const RedisBlock& block : conf->redis) {
        connections += block.scripts.size() == 0 ? 0 : block.least_connections();
    }
    if (connections > cycle->connection_n / 2) {
        ngx_log_error(
            NGX_LOG_WARN, log_of_warnings(*cycle), 0,
            "ratelimit: connections to Redis take %uz or more of the %ui worker_connections",
            connections, cycle->connection_n);
    }
    warn_of_resolution(*cycle, *conf);
    if (conf->fleet != nullptr) {
        conf->fleet->find_slots(*cycle->log);
        if (!ngx_test_config) {
            conf->fleet->load([conf] { return each_zones_settings(*conf); }, *cycle->log);
        }
    }
    return NGX_OK;
}

ngx_int_t init_process(ngx_cycle_t* cycle) noexcept
{
    const bool serves = ngx_process == NGX_PROCESS_WORKER || ngx_process == NGX_PROCESS_SINGLE;
    MainConf* conf = main_conf(cycle);
    if (!serves || conf == nullptr || (conf->zones.empty() && conf->fleet == nullptr)) {
        return NGX_OK;
    }
    return nginx::guarded(cycle->log, ngx_int_t{ NGX_ERROR }, [conf] {
        for (RedisBlock& block : conf->redis) {
            if (block.scripts.size() != 0) {
                block.client();
            }
        }
        for (ZoneConf& zone : conf->zones) {
            if (counts_at_one_time(zone.zone.policy.algorithm)) {
                zone.holds();
                if (zone.redis != nullptr && zone.redis->scripts.size() != 0) {
                    zone.holdings();
                }
            }
        }
        if (conf->fleet != nullptr) {
            conf->fleet->start([conf] { return node_figures(*conf); });
        }
        second_timer = std::make_unique<nginx::NgxTimer>(each_second);
        second_timer->start(second);
        return ngx_int_t{ NGX_OK };
    });
}

void exit_process(ngx_cycle_t* cycle) noexcept
{
    second_timer.reset();
    if (MainConf* conf = main_conf(cycle)) {
        for (const ZoneConf& zone : conf->zones) {
            if (zone.held != nullptr) {
                zone.held->release_all();
            }
        }
        if (conf->fleet != nullptr) {
            conf->fleet->stop();
        }
        for (RedisBlock& block : conf->redis) {
            block.close();
        }
        settle_running_requests();  // with closed clients, so that all of it waits to be sent
        for (RedisBlock& block : conf->redis) {
            block.send_owed();
            block.stop();
        }
    }
}

/// nginx itself ends: not a worker, not at a reload.
void exit_master(ngx_cycle_t* cycle) noexcept
{
    MainConf* conf = main_conf(cycle);
    if (conf != nullptr && conf->fleet != nullptr) {
        conf->fleet->leave(*cycle->log);
    }
}

void* create_conf(ngx_conf_t* cf) noexcept
{
    return create_main_conf(cf, { api_handler, check_handler, get_usage });
}

ngx_http_module_t context = {
    add_variables,         // preconfiguration
    postconfiguration,     //
    create_conf,           //
    init_main_conf,        //
    nullptr,               // create server configuration
    nullptr,               // merge server configuration
    create_location_conf,  //
    merge_location_conf,   //
};

}  // namespace

}  // namespace ratelimit::http

extern "C" {

ngx_module_t ngx_http_ratelimit_module = {
    NGX_MODULE_V1,
    &ratelimit::http::context,
    ratelimit::commands,
    NGX_HTTP_MODULE,
    nullptr,                        // init master
    ratelimit::http::init_module,   //
    ratelimit::http::init_process,  //
    nullptr,                        // init thread
    nullptr,                        // exit thread
    ratelimit::http::exit_process,  //
    ratelimit::http::exit_master,   //
    NGX_MODULE_V1_PADDING,
};

}  // extern "C"

#include "conf/zone_directive.h"

#include "conf/conf.h"
#include "conf/conf_error.h"
#include "conf/zone_tag.h"
#include "nginx/guarded.h"
#include "nginx/pool.h"
#include "store/zone_memory.h"

#include <utility>

namespace ratelimit {

namespace {

using nginx::view;

void apply(ZoneSettings& read, ZoneConf& conf)
{
    conf.zone.name = read.name;
    conf.zone.policy = read.policy;
    conf.calendar = std::move(read.calendar);
    conf.start_text = std::move(read.start_text);
    conf.zone.clock = read.clock;
    conf.zone.nodes = read.nodes;
    conf.zone.cache = read.cache;
    conf.zone.lease = read.lease;
    conf.zone.ahead = read.ahead;
    conf.hash_key = read.hash_key;
    conf.redis_name = std::move(read.redis);
    conf.redis_parameter = std::move(read.redis_parameter);
    conf.key_text = std::move(read.key);
    conf.rate_text = std::move(read.rate_text);
}

/// Compiles the key, and the rate and the start if they have variables.
char* compile_values(ngx_conf_t* cf, ZoneConf& conf)
{
    char* result = compile(cf, view(static_cast<ngx_str_t*>(cf->args->elts)[1]), conf.key);
    if (result == NGX_CONF_OK && conf.variable_rate()) {
        result = compile(cf, conf.rate_text, conf.rate);
    }
    if (result == NGX_CONF_OK && !conf.start_text.empty()) {
        result = compile(cf, conf.start_text, conf.start);
    }
    return result;
}

char* read_zone(ngx_conf_t* cf, MainConf& main)
{
    ZoneSettings read;
    auto error = read_words(words_of(cf), read);
    if (!error) {
        error = find_time_zone(read);
    }
    if (error) {
        return word_error(cf, *error);
    }
    const std::size_t size = read.size;
    if (size < 8 * ngx_pagesize) {  // where pages are larger than usual
        return bad_value(cf, read.name, "a size of at least eight memory pages");
    }
    ZoneConf conf;
    conf.position = position_of(cf);
    apply(read, conf);
    if (char* const result = compile_values(cf, conf); result != NGX_CONF_OK) {
        return result;
    }

    ngx_str_t name = nginx::copied(cf->pool, conf.zone.name);
    if (name.data == nullptr) {
        return failed();
    }
    if (main.zone_named(conf.zone.name) != nullptr) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "duplicate \"ratelimit_zone\" \"%V\"", &name);
        return failed();
    }
    conf.zone.shared = ngx_shared_memory_add(cf, &name, size, memory_tag(conf));
    if (conf.zone.shared == nullptr) {
        return failed();
    }
    conf.zone.shared->init = ZoneMemory::init;
    warn_of_changed_tag(cf, *conf.zone.shared);
    main.zones.push_back(std::move(conf));
    return NGX_CONF_OK;
}

}  // namespace

char* zone_directive(ngx_conf_t* cf, ngx_command_t*, void*) noexcept
{
    return nginx::guarded(cf->log, failed(), [cf] { return read_zone(cf, main_conf(cf)); });
}

}  // namespace ratelimit

#include "conf/check_directive.h"

#include "conf/conf_error.h"
#include "conf/content_handler.h"

namespace ratelimit {

char* check_directive(ngx_conf_t* cf, ngx_command_t*, void* conf) noexcept
{
    auto& location = *static_cast<LocationConf*>(conf);
    if (location.check != check_none) {
        return const_cast<char*>("is duplicate");
    }
    location.check = check_counts;
    if (cf->args->nelts > 1) {
        const auto value = nginx::view(static_cast<const ngx_str_t*>(cf->args->elts)[1]);
        if (value != "peek") {
            return bad_value(cf, "ratelimit_check", value, "peek, or nothing");
        }
        location.check = check_peeks;
    }
    location.answers_at = position_of(cf);
    return set_content_handler(cf, main_conf(cf).handlers.check);
}

bool merge_check(ngx_conf_t* cf, const LocationConf& above, LocationConf& conf) noexcept
{
    if (core_conf(cf).noname && conf.check == check_none) {
        conf.check = above.check;
        conf.answers_at = above.answers_at;
    }
    return conf.check == check_none
        || keeps_content_handler(
               cf, "ratelimit_check", main_conf(cf).handlers.check, conf.answers_at);
}

bool can_check(ngx_conf_t* cf, const LocationConf& conf) noexcept
{
    if (conf.check == check_none) {
        return true;
    }
    const char* what = nullptr;
    if (conf.limits == nullptr || conf.limits->limits.empty()) {
        what = "has no limit to check";
    } else {
        for (const LimitConf& limit : conf.limits->limits) {
            const Algorithm algorithm = limit.zone->zone.policy.algorithm;
            if (limit.charges()) {
                what = "cannot have a limit with charge=, since it does not see the response";
            } else if (traits_of(algorithm).delays && !limit.nodelay) {
                what = "cannot have a limit that delays, only one with nodelay";
            }
        }
    }
    if (what != nullptr) {
        ngx_log_error(
            NGX_LOG_EMERG, cf->log, 0, "\"ratelimit_check\" in location \"%V\" %s in %V:%ui",
            &core_conf(cf).name, what, &conf.answers_at.file, conf.answers_at.line);
    }
    return what == nullptr;
}

}  // namespace ratelimit

#include "conf/check_directive.h"

#include "conf/conf_error.h"
#include "conf/content_handler.h"
#include "limit/fail_mode.h"

#include <span>

namespace ratelimit {

namespace {

/// `error_page 429 = ...;` takes the status of the page, with which refused requests would pass. A
/// refusal of a subrequest is 403.
void warn_of_error_page(ngx_conf_t* cf, const LocationConf& conf)
{
    const ngx_http_core_loc_conf_t& core = core_conf(cf);
    if (core.error_pages == nullptr || core.noname) {
        return;
    }
    const bool closes = conf.fail_mode == static_cast<ngx_uint_t>(FailMode::closed);
    const std::span pages(
        static_cast<const ngx_http_err_page_t*>(core.error_pages->elts), core.error_pages->nelts);
    for (const ngx_http_err_page_t& page : pages) {
        const auto status = static_cast<ngx_uint_t>(page.status);
        const bool passes = page.overwrite >= 0 && page.overwrite < NGX_HTTP_SPECIAL_RESPONSE;
        const bool refuses = status == conf.refuse_status || status == NGX_HTTP_FORBIDDEN
            || (closes && status == conf.fail_status);
        if (passes && refuses) {
            ngx_log_error(
                NGX_LOG_WARN, cf->log, 0,
                "\"ratelimit_check\" in location \"%V\": refused requests get the status of the "
                "page of \"error_page %ui =\" in %V:%ui",
                &core.name, status, &conf.answers_at.file, conf.answers_at.line);
        }
    }
}

}  // namespace

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
            return bad_value(cf, value, "peek, or nothing");
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
    warn_of_error_page(cf, conf);
    return what == nullptr;
}

}  // namespace ratelimit

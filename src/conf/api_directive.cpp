#include "conf/api_directive.h"

#include "conf/conf_error.h"
#include "nginx/guarded.h"

#include <algorithm>
#include <array>

namespace ratelimit {

namespace {

using nginx::view;

ngx_http_core_loc_conf_t& core_conf(ngx_conf_t* cf) noexcept
{
    return *static_cast<ngx_http_core_loc_conf_t*>(
        ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module));
}

/// Whether an exact location of this name has something to serve.
bool is_page(std::string_view name) noexcept
{
    constexpr std::array<std::string_view, 5> pages = { "", "metrics", "zones", "redis", "fleet" };
    const auto last = name.substr(name.rfind('/') + 1);
    return std::find(pages.begin(), pages.end(), last) != pages.end();
}

/// Sets user=. False: the value has another form.
bool set_user(ngx_conf_t* cf, LocationConf& location, std::string_view value)
{
    static constexpr std::string_view name = "user=";
    if (!value.starts_with(name) || value.find('$') == std::string_view::npos) {
        return false;
    }
    location.api_user =
        static_cast<ngx_http_complex_value_t*>(ngx_pcalloc(cf->pool, sizeof(*location.api_user)));
    return location.api_user != nullptr
        && compile(cf, value.substr(name.size()), *location.api_user) == NGX_CONF_OK;
}

/// Sets write= and user=.
char* set_parameters(ngx_conf_t* cf, LocationConf& location)
{
    bool has_write = false;
    for (const std::string_view value : words_of(cf)) {
        const bool writes = value == "write=on" || value == "write=off";
        if (writes && !has_write) {
            location.api = value == "write=on" ? api_writes : api_reads;
            has_write = true;
        } else if (writes || location.api_user != nullptr || !set_user(cf, location, value)) {
            return bad_value(
                cf, "ratelimit_api", value,
                "write=on or write=off, and user= with a variable, each at most once");
        }
    }
    return NGX_CONF_OK;
}

}  // namespace

char* api_directive(ngx_conf_t* cf, ngx_command_t*, void* conf) noexcept
{
    auto& location = *static_cast<LocationConf*>(conf);
    auto& core = core_conf(cf);
    if (location.api != api_none) {
        return const_cast<char*>("is duplicate");
    }
    if (core.handler != nullptr) {  // merge_api finds the reverse order
        return const_cast<char*>("stands beside another directive that answers in this location");
    }
#if (NGX_PCRE)
    const bool regex = core.regex != nullptr;
#else
    const bool regex = false;
#endif
    if (regex || core.named || (core.exact_match && !is_page(view(core.name)))) {
        return const_cast<char*>("needs a location that is a prefix, such as /ratelimit/, or exact "
                                 "and ends in /metrics, /zones, /redis, /fleet or /");
    }
    location.api = api_reads;
    core.handler = main_conf(cf).api_handler;
    main_conf(cf).has_api = true;
    return nginx::guarded(
        cf->log, static_cast<char*>(NGX_CONF_ERROR), [&] { return set_parameters(cf, location); });
}

bool merge_api(ngx_conf_t* cf, const LocationConf& above, LocationConf& conf) noexcept
{
    auto& core = core_conf(cf);
    const ngx_http_handler_pt handler = main_conf(cf).api_handler;
    if (!core.noname && conf.api != api_none && core.handler != handler) {
        ngx_log_error(
            NGX_LOG_EMERG, cf->log, 0,
            "\"ratelimit_api\" stands beside another directive that answers in location \"%V\"",
            &core.name);
        return false;
    }
    if (core.noname && conf.api == api_none) {
        conf.api = above.api;
        conf.api_user = above.api_user;
    }
    // nginx does not use the location's handler in a limit_except block.
    if (core.lmt_excpt && core.handler == nullptr && conf.api != api_none) {
        core.handler = handler;
    }
    return true;
}

}  // namespace ratelimit

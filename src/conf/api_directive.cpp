#include "conf/api_directive.h"

#include "conf/conf_error.h"
#include "conf/content_handler.h"
#include "nginx/guarded.h"

#include <algorithm>
#include <array>

namespace ratelimit {

namespace {

using nginx::view;

/// Whether an exact location of this name has something to serve.
bool is_page(std::string_view name) noexcept
{
    constexpr std::array<std::string_view, 7> pages = { "",      "metrics", "zones",    "redis",
                                                        "fleet", "history", "overrides" };
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
                cf, value, "write=on or write=off, and user= with a variable, each at most once");
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
    if (char* error = set_content_handler(cf, main_conf(cf).handlers.api); error != NGX_CONF_OK) {
        return error;
    }
#if (NGX_PCRE)
    const bool regex = core.regex != nullptr;
#else
    const bool regex = false;
#endif
    if (regex || core.named || (core.exact_match && !is_page(view(core.name)))) {
        return const_cast<char*>("needs a location that is a prefix, such as /ratelimit/, or exact "
                                 "and ends in /metrics, /zones, /redis, /fleet, /history, "
                                 "/overrides or /");
    }
    location.api = api_reads;
    location.answers_at = position_of(cf);
    main_conf(cf).has_api = true;
    return nginx::guarded(cf->log, failed(), [&] { return set_parameters(cf, location); });
}

bool merge_api(ngx_conf_t* cf, const LocationConf& above, LocationConf& conf) noexcept
{
    if (core_conf(cf).noname && conf.api == api_none) {
        conf.api = above.api;
        conf.api_user = above.api_user;
        conf.answers_at = above.answers_at;
    }
    return conf.api == api_none
        || keeps_content_handler(cf, "ratelimit_api", main_conf(cf).handlers.api, conf.answers_at);
}

}  // namespace ratelimit

#include "conf/content_handler.h"

namespace ratelimit {

ngx_http_core_loc_conf_t& core_conf(ngx_conf_t* cf) noexcept
{
    return *static_cast<ngx_http_core_loc_conf_t*>(
        ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module));
}

char* set_content_handler(ngx_conf_t* cf, ngx_http_handler_pt handler) noexcept
{
    auto& core = core_conf(cf);
    if (core.handler != nullptr) {  // keeps_content_handler finds the reverse order
        return const_cast<char*>("stands beside another directive that answers in this location");
    }
    core.handler = handler;
    return NGX_CONF_OK;
}

bool keeps_content_handler(
    ngx_conf_t* cf, const char* directive, ngx_http_handler_pt handler,
    const ConfPosition& position) noexcept
{
    auto& core = core_conf(cf);
    if (core.lmt_excpt && core.handler == nullptr) {
        core.handler = handler;
    }
    if (core.noname || core.handler == handler) {
        return true;
    }
    ngx_log_error(
        NGX_LOG_EMERG, cf->log, 0,
        "\"%s\" stands beside another directive that answers in location \"%V\" in %V:%ui",
        directive, &core.name, &position.file, position.line);
    return false;
}

}  // namespace ratelimit

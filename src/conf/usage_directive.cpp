#include "conf/usage_directive.h"

#include "conf/conf_error.h"
#include "limit/usage_scanner.h"
#include "nginx/pool.h"

namespace ratelimit {

namespace {

constexpr std::string_view path_parameter = "json=";

/// Adds the variable. Several locations can have it.
char* add_variable(ngx_conf_t* cf, std::string_view name) noexcept
{
    const ngx_http_get_variable_pt getter = main_conf(cf).handlers.usage;
    ngx_str_t text = nginx::borrowed(name);
    ngx_http_variable_t* added =
        ngx_http_add_variable(cf, &text, NGX_HTTP_VAR_CHANGEABLE | NGX_HTTP_VAR_NOCACHEABLE);
    if (added == nullptr) {
        return static_cast<char*>(NGX_CONF_ERROR);
    }
    if (added->get_handler != nullptr && added->get_handler != getter) {
        return const_cast<char*>("has a variable that another directive sets");
    }
    added->get_handler = getter;
    return NGX_CONF_OK;
}

}  // namespace

char* usage_directive(ngx_conf_t* cf, ngx_command_t*, void* conf) noexcept
{
    auto& location = *static_cast<LocationConf*>(conf);
    if (location.usage != NGX_CONF_UNSET_PTR) {
        return const_cast<char*>("is duplicate");
    }
    const auto* words = static_cast<const ngx_str_t*>(cf->args->elts);
    const auto name = nginx::view(words[1]);
    auto path = nginx::view(words[2]);
    if (name.size() < 2 || name.front() != '$') {
        return bad_value(cf, "ratelimit_usage", name, "a variable, such as $tokens");
    }
    if (!path.starts_with(path_parameter)
        || !UsageScanner::is_path(path.substr(path_parameter.size()))) {
        return bad_value(
            cf, "ratelimit_usage", path,
            "json= with names between dots, such as json=usage.total_tokens");
    }
    path.remove_prefix(path_parameter.size());
    location.usage = nginx::make<std::string_view>(cf->pool, path);
    return location.usage == nullptr ? static_cast<char*>(NGX_CONF_ERROR)
                                     : add_variable(cf, name.substr(1));
}

}  // namespace ratelimit

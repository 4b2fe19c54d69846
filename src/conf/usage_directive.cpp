#include "conf/usage_directive.h"

#include "conf/conf_error.h"
#include "limit/usage_scanner.h"
#include "limit/variable_text.h"
#include "nginx/guarded.h"

#include <algorithm>

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
        return failed();
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
        return bad_value(cf, name, "a variable, such as $tokens");
    }
    if (!path.starts_with(path_parameter)
        || !UsageScanner::is_path(path.substr(path_parameter.size()))) {
        return bad_value(
            cf, path,
            "json= with names between dots, not through arrays, such as json=usage.total_tokens");
    }
    path.remove_prefix(path_parameter.size());
    return nginx::guarded(cf->log, failed(), [&] {
        auto& usages = main_conf(cf).usages;
        usages.push_back({ name.substr(1), path, position_of(cf) });
        location.usage = &usages.back();
        return add_variable(cf, name.substr(1));
    });
}

bool reads_usage(const MainConf& main, std::string_view text) noexcept
{
    return std::any_of(main.usages.begin(), main.usages.end(), [text](const UsageConf& usage) {
        return has_variable_named(text, usage.variable);
    });
}

bool usages_have_limits(ngx_conf_t* cf) noexcept
{
    for (const UsageConf& usage : main_conf(cf).usages) {
        if (!usage.limited) {
            const ngx_str_t name = nginx::borrowed(usage.variable);
            ngx_log_error(
                NGX_LOG_EMERG, cf->log, 0,
                "\"ratelimit_usage $%V\": no limit in its location, whose charge= would have it "
                "in %V:%ui",
                &name, &usage.position.file, usage.position.line);
            return false;
        }
    }
    return true;
}

}  // namespace ratelimit

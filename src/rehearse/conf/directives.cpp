#include "rehearse/conf/directives.h"

#include <algorithm>
#include <array>

namespace ratelimit::rehearse {

bool is_rewriting(const Directive& one) noexcept
{
    return one.name == "set" || one.name == "if" || one.name == "rewrite" || one.name == "return"
        || one.name == "break";
}

bool may_leave(const std::vector<const Directive*>& rewrites) noexcept
{
    return std::any_of(rewrites.begin(), rewrites.end(), [](const Directive* one) {
        return one->name == "break" || one->name == "rewrite"
            || (one->name == "if"
                && std::any_of(one->block.begin(), one->block.end(), [](const Directive& inner) {
                       return inner.name == "break" || inner.name == "rewrite";
                   }));
    });
}

bool is_of_module(std::string_view name) noexcept
{
    constexpr std::array<std::string_view, 17> names = {
        "ratelimit",           "ratelimit_api",          "ratelimit_check",
        "ratelimit_dry_run",   "ratelimit_fail_mode",    "ratelimit_fail_status",
        "ratelimit_fleet",     "ratelimit_headers",      "ratelimit_ipv6_prefix",
        "ratelimit_log_level", "ratelimit_phase",        "ratelimit_problem_details",
        "ratelimit_redis",     "ratelimit_retry_jitter", "ratelimit_status",
        "ratelimit_usage",     "ratelimit_zone",
    };
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_not_followed(const Directive& one) noexcept
{
    const bool lua = one.name.starts_with("access_by_lua") || one.name.starts_with("rewrite_by_lua")
        || one.name.starts_with("server_rewrite_by_lua");
    return lua || one.name == "modsecurity" || one.name == "app_protect_enable"
        || one.name == "ratelimit_check";
}

bool is_handler(const Directive& one) noexcept
{
    constexpr std::array<std::string_view, 12> names = {
        "proxy_pass",      "fastcgi_pass",   "uwsgi_pass", "scgi_pass",   "grpc_pass",
        "ratelimit_check", "memcached_pass", "empty_gif",  "stub_status", "perl",
        "js_content",      "ratelimit_api",
    };
    return std::find(names.begin(), names.end(), one.name) != names.end()
        || one.name.starts_with("content_by_lua");
}

}  // namespace ratelimit::rehearse

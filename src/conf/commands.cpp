#include "conf/commands.h"

#include "conf/api_directive.h"
#include "conf/check_directive.h"
#include "conf/conf.h"
#include "conf/conf_error.h"
#include "conf/fleet_directive.h"
#include "conf/limit_directive.h"
#include "conf/redis_directive.h"
#include "conf/usage_directive.h"
#include "conf/zone_directive.h"
#include "limit/fail_mode.h"
#include "limit/rate_text.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace ratelimit {

namespace {

using nginx::view;

ngx_uint_t& slot_of(void* conf, const ngx_command_t* command) noexcept
{
    return *reinterpret_cast<ngx_uint_t*>(static_cast<char*>(conf) + command->offset);
}

struct NumberRange {
    std::int64_t least;
    std::int64_t most;
    std::string_view expected;
    std::string_view unit = {};  // behind the number
};

char* set_number(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept
{
    ngx_uint_t& slot = slot_of(conf, command);
    if (slot != NGX_CONF_UNSET_UINT) {
        return const_cast<char*>("is duplicate");
    }
    const auto text = view(static_cast<const ngx_str_t*>(cf->args->elts)[1]);
    const auto& range = *static_cast<const NumberRange*>(command->post);
    const bool has_unit = text.ends_with(range.unit);
    const auto number = parse_number(
        text.substr(0, has_unit ? text.size() - range.unit.size() : 0), range.least, range.most);
    if (!number) {
        return bad_value(cf, text, range.expected);
    }
    slot = static_cast<ngx_uint_t>(*number);
    return NGX_CONF_OK;
}

struct Choice {
    std::string_view name;
    ngx_uint_t value;
};

struct Choices {
    std::span<const Choice> all;
    std::string_view expected;
};

const Choice* choice_named(const Choices& choices, std::string_view name) noexcept
{
    const auto found =
        std::find_if(choices.all.begin(), choices.all.end(), [name](const Choice& choice) {
            return choice.name == name;
        });
    return found == choices.all.end() ? nullptr : &*found;
}

char* set_choice(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept
{
    ngx_uint_t& slot = slot_of(conf, command);
    if (slot != NGX_CONF_UNSET_UINT) {
        return const_cast<char*>("is duplicate");
    }
    const auto text = view(static_cast<const ngx_str_t*>(cf->args->elts)[1]);
    const auto& choices = *static_cast<const Choices*>(command->post);
    const Choice* choice = choice_named(choices, text);
    if (choice == nullptr) {
        return bad_value(cf, text, choices.expected);
    }
    slot = choice->value;
    return NGX_CONF_OK;
}

/// Sets a bit for each name; `off` excludes the others.
char* set_headers(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept
{
    ngx_uint_t& slot = slot_of(conf, command);
    if (slot != NGX_CONF_UNSET_UINT) {
        return const_cast<char*>("is duplicate");
    }
    const auto& choices = *static_cast<const Choices*>(command->post);
    ngx_uint_t sets = 0;
    for (ngx_uint_t i = 1; i < cf->args->nelts; ++i) {
        const auto text = view(static_cast<const ngx_str_t*>(cf->args->elts)[i]);
        const Choice* choice = choice_named(choices, text);
        const bool off = choice != nullptr && choice->value == headers_off;
        if (choice == nullptr || (off && cf->args->nelts > 2) || (sets & choice->value) != 0) {
            return bad_value(cf, text, choices.expected);
        }
        sets |= choice->value;
    }
    slot = sets;
    return NGX_CONF_OK;
}

const NumberRange error_status{ 400, 599, "a status from 400 to 599" };
const NumberRange ipv6_prefix{ 1, 128, "a number of bits from 1 to 128" };

const NumberRange retry_jitter{ 0, 100, "a share from 0% to 100%", "%" };

const Choice fail_mode_list[] = {
    { "open", static_cast<ngx_uint_t>(FailMode::open) },
    { "closed", static_cast<ngx_uint_t>(FailMode::closed) },
    { "local", static_cast<ngx_uint_t>(FailMode::local) },
};
const Choices fail_modes{ fail_mode_list, "open, closed or local" };

const Choice log_level_list[] = {
    { "info", NGX_LOG_INFO },
    { "notice", NGX_LOG_NOTICE },
    { "warn", NGX_LOG_WARN },
    { "error", NGX_LOG_ERR },
};
const Choices log_levels{ log_level_list, "info, notice, warn or error" };

const Choice header_list[] = {
    { "off", headers_off },
    { "x-ratelimit", headers_x_ratelimit },
    { "draft", headers_draft },
    { "legacy", headers_legacy },
};
const Choices header_sets{ header_list, "off alone, or each of x-ratelimit, draft, legacy once" };

const Choice switch_list[] = { { "on", 1 }, { "off", 0 } };
const Choices switches{ switch_list, "on or off" };

const Choice phase_list[] = { { "access", phase_access }, { "preaccess", phase_preaccess } };
const Choices phases{ phase_list, "access or preaccess" };

constexpr ngx_uint_t anywhere = NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF;

template <class Post>
void* post(const Post& value) noexcept
{
    return const_cast<void*>(static_cast<const void*>(&value));
}

}  // namespace

ngx_command_t commands[] = {
    { ngx_string("ratelimit_redis"), NGX_HTTP_MAIN_CONF | NGX_CONF_BLOCK | NGX_CONF_TAKE1,
      redis_directive, NGX_HTTP_MAIN_CONF_OFFSET, 0, nullptr },

    { ngx_string("ratelimit_fleet"), NGX_HTTP_MAIN_CONF | NGX_CONF_ANY, fleet_directive,
      NGX_HTTP_MAIN_CONF_OFFSET, 0, nullptr },

    { ngx_string("ratelimit_zone"), NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE, zone_directive,
      NGX_HTTP_MAIN_CONF_OFFSET, 0, nullptr },

    { ngx_string("ratelimit"), anywhere | NGX_CONF_1MORE, limit_directive, NGX_HTTP_LOC_CONF_OFFSET,
      0, nullptr },

    { ngx_string("ratelimit_fail_mode"), anywhere | NGX_CONF_TAKE1, set_choice,
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, fail_mode), post(fail_modes) },

    { ngx_string("ratelimit_fail_status"), anywhere | NGX_CONF_TAKE1, set_number,
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, fail_status), post(error_status) },

    { ngx_string("ratelimit_status"), anywhere | NGX_CONF_TAKE1, set_number,
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, refuse_status), post(error_status) },

    { ngx_string("ratelimit_headers"), anywhere | NGX_CONF_1MORE, set_headers,
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, headers), post(header_sets) },

    { ngx_string("ratelimit_dry_run"), anywhere | NGX_CONF_TAKE1, set_choice,
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, dry_run), post(switches) },

    { ngx_string("ratelimit_log_level"), anywhere | NGX_CONF_TAKE1, set_choice,
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, log_level), post(log_levels) },

    { ngx_string("ratelimit_ipv6_prefix"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1, set_number,
      NGX_HTTP_MAIN_CONF_OFFSET, offsetof(MainSettings, ipv6_prefix), post(ipv6_prefix) },

    { ngx_string("ratelimit_phase"), anywhere | NGX_CONF_TAKE1, set_choice,
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, phase), post(phases) },

    { ngx_string("ratelimit_retry_jitter"), anywhere | NGX_CONF_TAKE1, set_number,
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, retry_jitter), post(retry_jitter) },

    { ngx_string("ratelimit_problem_details"), anywhere | NGX_CONF_TAKE1, set_choice,
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, problem_details), post(switches) },

    { ngx_string("ratelimit_api"), NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE12,
      api_directive, NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr },

    { ngx_string("ratelimit_check"), NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1,
      check_directive, NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr },

    { ngx_string("ratelimit_usage"), anywhere | NGX_CONF_TAKE2, usage_directive,
      NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr },

    ngx_null_command
};

}  // namespace ratelimit

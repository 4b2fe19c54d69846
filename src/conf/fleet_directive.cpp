#include "conf/fleet_directive.h"

#include "conf/conf.h"
#include "conf/conf_error.h"
#include "nginx/guarded.h"
#include "nginx/text.h"
#include "store/fleet_memory.h"

#include <span>

namespace ratelimit {

namespace {

using nginx::borrowed;
using nginx::view;

constexpr ssize_t default_size = ssize_t{ 8 } * 1024 * 1024;
constexpr std::size_t longest_name = 64;

struct FleetReader {
    ngx_conf_t* cf;
    FleetMember& fleet;
    ssize_t size = 0;  // 0: not given
};

char* set_parameter(FleetReader& reader, std::string_view parameter)
{
    const auto value = parameter.substr(std::min(parameter.find('=') + 1, parameter.size()));
    if (parameter.starts_with("redis=") && !reader.fleet.redis_name) {
        reader.fleet.redis_name = value;
        return NGX_CONF_OK;
    }
    if (parameter.starts_with("node=") && reader.fleet.name.empty()) {
        if (!good_name(value) || value.size() > longest_name) {
            return bad_value(
                reader.cf, parameter,
                "node=name, at most 64 letters, digits, _ . or -, not starting with a dot");
        }
        reader.fleet.name = value;
        return NGX_CONF_OK;
    }
    if (parameter.starts_with("size=") && reader.size == 0) {
        ngx_str_t text = borrowed(value);
        reader.size = ngx_parse_size(&text);
        return reader.size >= static_cast<ssize_t>(FleetMemory::smallest_size)
            ? NGX_CONF_OK
            : bad_value(reader.cf, parameter, "a size such as 8m, at least 256k");
    }
    return bad_value(reader.cf, parameter, "redis=, node= or size=, each at most once");
}

/// Adds the fleet's memory. Its name has a space, so that it differs from every zone's.
char* add_memory(FleetReader& reader)
{
    static char tag;
    static ngx_str_t name = ngx_string("ratelimit fleet");
    const auto size = static_cast<std::size_t>(reader.size == 0 ? default_size : reader.size);
    reader.fleet.memory = ngx_shared_memory_add(reader.cf, &name, size, &tag);
    if (reader.fleet.memory == nullptr) {
        return failed();
    }
    reader.fleet.memory->init = FleetMemory::init;
    return NGX_CONF_OK;
}

char* read_fleet(ngx_conf_t* cf, MainConf& main)
{
    if (main.fleet != nullptr) {
        return const_cast<char*>("is duplicate");
    }
    main.fleet = std::make_unique<FleetMember>();
    main.fleet_position = position_of(cf);
    FleetReader reader{ cf, *main.fleet };
    const std::span values(static_cast<const ngx_str_t*>(cf->args->elts), cf->args->nelts);
    for (const ngx_str_t& value : values.subspan(1)) {
        if (char* result = set_parameter(reader, view(value)); result != NGX_CONF_OK) {
            return result;
        }
    }
    if (main.fleet->name.empty()) {
        main.fleet->name = view(cf->cycle->hostname);
    }
    return add_memory(reader);
}

}  // namespace

char* fleet_directive(ngx_conf_t* cf, ngx_command_t*, void*) noexcept
{
    return nginx::guarded(cf->log, failed(), [cf] { return read_fleet(cf, main_conf(cf)); });
}

}  // namespace ratelimit

#include "conf/conf.h"

#include "nginx/timer.h"
#include "node/clocks.h"

#include <algorithm>

namespace ratelimit {

namespace {

template <class Collection, class Name>
auto* element_named(Collection& collection, std::string_view wanted, Name name) noexcept
{
    const auto found = std::find_if(collection.begin(), collection.end(), [&](const auto& element) {
        return name(element) == wanted;
    });
    return found == collection.end() ? nullptr : &*found;
}

}  // namespace

ConfPosition position_of(const ngx_conf_t* cf) noexcept
{
    if (cf->conf_file == nullptr) {
        return {};
    }
    return { cf->conf_file->file.name, cf->conf_file->line };
}

HeldRequests& ZoneConf::holds()
{
    if (held == nullptr) {
        held = std::make_unique<HeldRequests>(zone, node_clock, [](std::function<void()> fired) {
            return std::make_unique<nginx::NgxTimer>(std::move(fired));
        });
    }
    return *held;
}

Holdings& ZoneConf::holdings()
{
    if (Holdings* made = holds().in_redis()) {
        return *made;
    }
    redis->holdings.reserve(redis->holdings.size() + 1);  // first: it throws without memory
    return *redis->holdings.emplace_back(&holds().in_redis(redis->client()));
}

ZoneConf* MainConf::zone_named(std::string_view name) noexcept
{
    return element_named(zones, name, [](const ZoneConf& zone) { return zone.zone.name; });
}

RedisBlock* MainConf::redis_named(std::string_view name) noexcept
{
    return element_named(redis, name, [](const RedisBlock& block) { return block.name; });
}

MainConf& main_conf(ngx_conf_t* cf) noexcept
{
    return static_cast<MainConf&>(*static_cast<MainSettings*>(
        ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module)));
}

MainConf& main_conf(ngx_http_request_t* r) noexcept
{
    return static_cast<MainConf&>(
        *static_cast<MainSettings*>(ngx_http_get_module_main_conf(r, ngx_http_ratelimit_module)));
}

MainConf* main_conf(ngx_cycle_t* cycle) noexcept
{
    auto* settings = static_cast<MainSettings*>(
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_ratelimit_module));
    return static_cast<MainConf*>(settings);
}

}  // namespace ratelimit

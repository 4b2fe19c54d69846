#include "store/node_past.h"

namespace ratelimit {

namespace {

constexpr std::int64_t continues_us = 60'000'000;

}  // namespace

void NodePast::follow(bool is_away, std::int64_t since) noexcept
{
    Outage* last = outages_.last();
    const bool lasts = last != nullptr && last->to_us == 0;
    if (lasts == is_away) {
        return;
    }
    if (lasts) {
        last->to_us = since;
    } else if (last != nullptr && since - continues_us < last->to_us) {
        last->to_us = 0;
        ++last->times;
    } else {
        outages_.add({ since, 0, 1 });
    }
}

void NodePast::set_settings(std::span<const ZoneSettings> zones) noexcept
{
    zones_ = std::min(zones.size(), most_zones);
    std::copy_n(zones.begin(), zones_, settings_.begin());
}

void NodePast::add_load(std::int64_t now, std::string_view text) noexcept
{
    Load load;
    load.at_us = now;
    load.length = text.copy(load.bytes.data(), load.bytes.size());
    loads_.add(load);
}

}  // namespace ratelimit

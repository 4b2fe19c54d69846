#include "rehearse/conf/limit_conf.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

/// The directive's words, of which nginx wants at least `least`.
std::vector<std::string_view> words_of(const Directive& directive, std::size_t least)
{
    if (directive.has_block) {
        fail_at(directive.place, "directive \"" + directive.name + "\" is not terminated by \";\"");
    }
    directive.expect_args(least);
    return { directive.args.begin(), directive.args.end() };
}

}  // namespace

ZoneConf read_zone(const Directive& directive)
{
    ZoneConf zone;
    zone.place = directive.place;
    auto error = read_words(words_of(directive, 2), zone);
    if (!error) {
        error = find_time_zone(zone);
    }
    if (error) {
        fail_at(directive.place, error->message(directive.name));
    }
    return zone;
}

LimitConf read_limit(const Directive& directive, const std::vector<ZoneConf>& zones)
{
    LimitConf limit;
    limit.place = directive.place;
    if (const auto error = read_words(words_of(directive, 1), limit)) {
        fail_at(directive.place, error->message(directive.name));
    }
    const auto zone = std::find_if(zones.begin(), zones.end(), [&](const ZoneConf& one) {
        return one.name == limit.zone_name;
    });
    LimitedZone limited;
    if (zone != zones.end()) {
        limited = { &zone->policy, zone->ahead > 0, zone->lease > 0 };
    }
    if (const auto error = check_limit(limit, limited)) {
        fail_at(directive.place, error->message(limit.title()));
    }
    limit.zone = static_cast<std::size_t>(zone - zones.begin());
    limit.policy = zone->policy;
    limit.policy.burst = limit.burst ? limit.burst : limit.policy.burst;
    limit.policy.reserve = limit.reserve.of(limit.policy.whole());
    return limit;
}

}  // namespace ratelimit::rehearse

#include "http/api/happened_json.h"

#include "fleet/override_text.h"
#include "http/api/override_json.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ratelimit::http {

namespace {

using What = fleet::Happening::What;

constexpr std::uint64_t us_in_ms = 1000;

std::string_view word_of(What what) noexcept
{
    constexpr std::array<std::string_view, 8> words = {
        "redis_away", "started", "ended", "away", "loaded", "set", "taken_back", "freed",
    };
    return words[static_cast<std::size_t>(what)];
}

/// A change by an operator.
void write_change(JsonText& json, MainConf& conf, const fleet::Happening& one)
{
    const ZoneConf* zone = conf.zone_named(one.zone);
    const auto stored = fleet::parse_stored(one.text);
    json.text("zone", one.zone);
    write_key(json, zone == nullptr ? nullptr : &zone->zone, one.key);
    json.text("by", stored.by);
    if (one.what == What::set) {
        json.begin_object("override");
        write_override(json, stored, milliseconds{ static_cast<std::int64_t>(one.at / us_in_ms) });
        json.end_object();
    } else {
        json.null("override");
    }
}

/// An event of nodes.
void write_event(JsonText& json, const fleet::Happening& one)
{
    json.seconds("until", or_null(Microseconds(one.until)))
        .number("nodes", one.nodes.count)
        .begin_array("names");
    for (const std::string& name : one.nodes.names) {
        json.text({}, name);
    }
    json.end_array();
    if (one.what == What::redis_away) {
        json.number("times", one.times);
    }
    if (one.what == What::loaded) {
        json.text("settings", one.text);
    }
}

}  // namespace

void write_happening(JsonText& json, MainConf& conf, const fleet::Happening& one)
{
    json.begin_object().text("what", word_of(one.what)).seconds("at", Microseconds(one.at));
    if (one.is_change()) {
        write_change(json, conf, one);
    } else {
        write_event(json, one);
    }
    json.end_object();
}

std::uint64_t changes_since(const fleet::NodeList& list) noexcept
{
    const auto& changes = list.changes;
    return std::ssize(changes) < fleet::NodesCall::most_past
        ? list.changes_since_us
        : std::max(list.changes_since_us, changes.back().at_us);
}

}  // namespace ratelimit::http

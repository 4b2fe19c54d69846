#include "http/api/override_json.h"

#include "http/shown_key.h"
#include "limit/percent_text.h"
#include "limit/rate_text.h"

#include <algorithm>

namespace ratelimit::http {

namespace {

/// What it sets, and until when.
void write_value(
    JsonText& json, const Override& value, std::string_view rate_text, milliseconds now)
{
    switch (value.kind) {
    case Override::Kind::rate:
        json.text("rate", rate_text);
        if (value.burst) {
            json.number("burst", *value.burst);
        }
        break;
    case Override::Kind::concurrency:
        json.number("concurrency", value.rate.quota);
        break;
    case Override::Kind::block:
        json.flag("block", true);
        break;
    case Override::Kind::unlimited:
        json.flag("unlimited", true);
        break;
    default:
        json.flag("unknown", true);
        break;
    }
    const auto end = or_null(value.end);
    const auto left = std::max(value.rest(now), milliseconds{ 0 });
    json.seconds("until", end)
        .seconds("for_seconds_left", end ? std::optional(left) : std::nullopt);
}

}  // namespace

void write_override(JsonText& json, const fleet::StoredOverride& stored, milliseconds now)
{
    write_value(json, stored.value, stored.rate_text, now);
    json.text("by", stored.by)
        .text("reason", or_null(std::string_view(stored.reason)))
        .seconds("at", stored.at);
}

void write_key(JsonText& json, const Zone* zone, std::string_view key)
{
    if (key.empty()) {
        json.null("key").null("id");
    } else {
        json.text("key", shown_key(zone, key)).text("id", percent_encoded(key));
    }
}

std::uint64_t override_count(const Zone& zone) noexcept
{
    return zone.override_slot == nullptr ? 0 : zone.override_slot->count();
}

void write_own_override(JsonText& json, const Zone& zone, std::string_view key)
{
    const auto override = zone.override_slot == nullptr ? std::nullopt : zone.own_override(key);
    if (!override) {
        json.null("override");
        return;
    }
    json.begin_object("override");
    write_value(json, *override, rate_text(override->rate), FleetMemory(*zone.fleet).redis_now());
    json.end_object();
}

}  // namespace ratelimit::http

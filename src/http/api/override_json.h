#pragma once

#include "conf/conf.h"
#include "fleet/override_text.h"
#include "http/api/json_text.h"

namespace ratelimit::http {

/// Writes an override's members, as Redis has it. `now`: by Redis's clock.
void write_override(JsonText& json, const fleet::StoredOverride& stored, milliseconds now);

/// How many overrides of the zone and its keys this node has.
std::uint64_t override_count(const Zone& zone) noexcept;

/// Writes "override": what is in force for the whole zone on this node; null: as configured.
void write_zone_override(JsonText& json, const Zone& zone);

}  // namespace ratelimit::http

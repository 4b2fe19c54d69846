#pragma once

#include "conf/conf.h"
#include "fleet/override_text.h"
#include "limit/json_text.h"

namespace ratelimit::http {

/// Writes an override's members, as Redis has it. `now`: by Redis's clock.
void write_override(JsonText& json, const fleet::StoredOverride& stored, milliseconds now);

/// Writes a key as people know it, and its bytes as "id"; null both for the whole zone, which has
/// an empty `key`. `zone`: null if this node does not have it.
void write_key(JsonText& json, const Zone* zone, std::string_view key);

/// How many overrides of the zone and its keys this node has.
std::uint64_t override_count(const Zone& zone) noexcept;

/// Writes "override": the one in force on this node for the key or, with an empty key, for the
/// whole zone; null: none.
void write_own_override(JsonText& json, const Zone& zone, std::string_view key);

}  // namespace ratelimit::http

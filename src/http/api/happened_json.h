#pragma once

#include "conf/conf.h"
#include "fleet/nodes_call.h"
#include "limit/json_text.h"

#include <cstdint>

namespace ratelimit::http {

/// Writes an element of "happened".
void write_happening(JsonText& json, MainConf& conf, const fleet::Happening& one);

/// Since when all changes are in the list of what happened, in microseconds since the epoch; 0: not
/// known.
std::uint64_t changes_since(const fleet::NodeList& list) noexcept;

}  // namespace ratelimit::http

#pragma once

#include "limit/override.h"

#include <string>
#include <string_view>

namespace ratelimit::fleet {

/// How long an override is in force: for `lasts`, or until `until` (since the epoch, by Redis's
/// clock). Both 0: until it is taken back.
struct OverrideTime {
    milliseconds lasts{ 0 };
    milliseconds until{ 0 };
};

/// A change that an operator asks for: an override, and how long it is in force.
struct OverrideChange {
    Override value;  // without an end
    std::string rate_text;
    OverrideTime time;
    std::string reason;
};

/// An override as Redis has it, with its time and its author.
struct StoredOverride {
    Override value;
    std::string rate_text;
    milliseconds at{ 0 };  // when it was set, since the epoch, by Redis's clock
    std::string by;
    std::string reason;
};

inline constexpr std::size_t longest_text = 4096;  // of a change or a stored override, in bytes

/// Parses the JSON of a change: one of "rate" (with or without "burst"), "concurrency", "block" and
/// "unlimited"; "for" or "until", and "reason", or not. Members that are null are as if missing,
/// and those that a node adds are passed over, so that an override can be set as it is read. A
/// member that stands twice is an error. Returns the error, one line; empty: `change` is set.
std::string parse_change(std::string_view text, OverrideChange& change);

/// The JSON text of the override without its closing brace, with the first 256 bytes of `by`, and
/// the reason. The script that stores it adds "at" and "until" (lua/fleet_change.lua).
std::string begin_stored(const OverrideChange& change, std::string_view by);

/// The same of a change that sets no override.
std::string begin_noted(std::string_view by);

/// Parses what Redis has. Never fails: what this version does not understand has
/// Override::Kind::unknown. Unknown members are passed over.
StoredOverride parse_stored(std::string_view text);

}  // namespace ratelimit::fleet

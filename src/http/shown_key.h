#pragma once

#include "zone/zone.h"

#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::http {

/// Writes a key for people to `out`, at most `limit` bytes, at least 64: as an address or a network
/// in a zone of addresses (Zone::addresses), otherwise escaped_for_log. Returns the written text.
std::string_view shown_key(
    const Zone& zone, std::string_view key, char* out, std::size_t limit) noexcept;
/// `zone`: null if this node does not have it.
std::string shown_key(const Zone* zone, std::string_view key);

/// Writes the 4 or 16 bytes of an address, of which a key keeps `bits` bits: with "/bits" if that
/// is less than all. At least NGX_SOCKADDR_STRLEN + 4 bytes are always enough. Returns the text.
std::string_view write_network(
    std::string_view bytes, std::size_t bits, char* out, std::size_t limit) noexcept;

/// Whether people would take the text for an address or a network.
bool is_address(std::string_view text);

/// The zone's key that a person means, before it is hashed. In a zone of addresses `typed` is an
/// address, or a network of the zone's length: "198.51.100.7", "2001:DB8::0001",
/// "2001:db8:1:2::/64". Empty: it is neither.
std::optional<std::string> typed_key(const Zone& zone, std::string_view typed);

}  // namespace ratelimit::http

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::http {

/// The view that a request's path names, and its parameters.
struct ApiPath {
    enum class View : std::uint8_t {
        nothing,
        slash_missing,
        dashboard,
        metrics,
        zones,
        history,  // of `zone`, or of the node
        key,
        override_key,   // the override of `key`
        override_zone,  // the override of the whole zone
        overrides,      // all of `zone`, or of all zones
        no_key,         // the key is missing, or the raw path has a "." or ".."
        redis,
        fleet
    };

    View view = View::nothing;
    std::optional<std::string> zone;  // for View::zones: this zone only
    std::string key;                  // for View::key and View::override_key: any bytes
    enum class NamedBy : std::uint8_t {
        person,  // as people write it: in the path, or key=
        hash,    // hash=
        id,      // the bytes that are counted, id=
    };
    NamedBy named_by = NamedBy::person;
};

/// `location`: the API's prefix. `path`: normalized and decoded by nginx. `raw`: as the client sent
/// it; the key is taken from it, since a key may contain slashes, unless nginx has `rewritten` the
/// request. No view has a raw path with "." or "..", which nginx has resolved. `arguments`: may
/// have the key as "key=", percent-encoded, or its hash as "hash=", or its bytes as "id=".
ApiPath parse_api_path(
    std::string_view location, std::string_view path, std::string_view raw, bool rewritten,
    std::string_view arguments);

struct ApiArgument {
    bool given = false;
    std::optional<std::string> value;  // percent-decoded; empty: not given, or malformed
};
ApiArgument api_argument(std::string_view arguments, std::string_view name);

}  // namespace ratelimit::http

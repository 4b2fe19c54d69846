#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::http {

/// What of the API is asked for.
struct ApiPath {
    enum class View : std::uint8_t {
        nothing,
        slash_missing,
        dashboard,
        metrics,
        zones,
        key,
        no_key,  // it has none, or one that no path can have
        redis
    };

    View view = View::nothing;
    std::optional<std::string> zone;  // zones: of this one only
    std::string key;                  // key: any bytes
    bool hashed = false;              // key is what the zone knows it by, an argument hash=
};

/// `location`: the prefix that the API is below; `path`: as nginx has normalized and decoded it;
/// `raw`: as the client sent it, of which a key is taken, since it may have slashes and the like,
/// unless nginx has rewritten the request; `arguments`: may have the key too, "key=",
/// percent-encoded, or its hash, "hash=".
ApiPath parse_api_path(
    std::string_view location, std::string_view path, std::string_view raw, bool rewritten,
    std::string_view arguments);

struct ApiArgument {
    bool given = false;
    std::optional<std::string> value;  // percent-decoded; empty: there is none, or it is malformed
};
ApiArgument api_argument(std::string_view arguments, std::string_view name);

}  // namespace ratelimit::http

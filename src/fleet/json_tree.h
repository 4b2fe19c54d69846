#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace ratelimit::fleet {

/// A value of a JSON text (RFC 8259), with its members or elements. A tree of nlohmann's library
/// allocates memory when it is destroyed, and ends the process if there is none: here only values
/// without parts are the library's.
struct JsonTree {
    enum class Kind : std::uint8_t { single, object, array };

    std::string name{};  // of a member
    Kind kind = Kind::single;
    nlohmann::json single{};        // null for the other kinds
    std::vector<JsonTree> parts{};  // in the order of the text

    bool is_null() const noexcept { return kind == Kind::single && single.is_null(); }
    /// Of an object, the last member of this name. Null: there is none.
    const JsonTree* find(std::string_view member) const noexcept;
};

/// Objects and arrays inside of `depth` others have no parts. Empty: the text is no JSON.
std::optional<JsonTree> parse_json(std::string_view text, std::size_t depth);

}  // namespace ratelimit::fleet

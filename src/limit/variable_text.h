#pragma once

#include <string_view>

namespace ratelimit {

/// Whether nginx knows the variable only with the response, or not before the content handler: when
/// a limit is decided it is empty or zero.
bool known_late(std::string_view name) noexcept;

/// What a text is for: all but charge= is evaluated when a limit is decided.
enum class VariableUse { cost, charge, other };

/// What was expected in place of a text with variables that cannot mean what it says, a static
/// text: it has a variable that is known too late, or a name that ends before a `-`, as in
/// `$http_x-api-key`. Empty: nothing is wrong. A `map` of such a variable is not seen: nginx keeps
/// the source of a map in a structure that is private to its module.
std::string_view expected_variables(std::string_view text, VariableUse use) noexcept;

/// Whether the text has this variable.
bool has_variable_named(std::string_view text, std::string_view name) noexcept;

/// Whether a text without variables is the name of one that keys are made of, such as
/// `remote_addr`.
bool names_variable(std::string_view text) noexcept;

}  // namespace ratelimit

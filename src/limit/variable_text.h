#pragma once

#include <string_view>
#include <vector>

namespace ratelimit {

/// Whether nginx knows the variable only with the response, or not before the content handler: when
/// a limit is decided it is empty or zero.
bool known_late(std::string_view name) noexcept;

/// What a text is for: all but charge= is evaluated when a limit is decided.
enum class VariableUse { cost, charge, key, other };

/// What is expected in place of a variable that is known only with the response.
inline constexpr std::string_view late_cost =
    "charge=, since the value is known only with the response, after the decision";
inline constexpr std::string_view late_value =
    "variables that are known when the limit is decided, before the response";

/// What was expected in place of a text with variables that cannot mean what it says, a static
/// text: it has a variable that is known too late, a key has one that is new with each request or
/// connection, or a name ends before a `-`, as in `$http_x-api-key`. Empty: nothing is wrong. A
/// `map` of such a variable is not seen: nginx keeps the source of a map in a structure that is
/// private to its module.
std::string_view expected_variables(std::string_view text, VariableUse use) noexcept;

/// The names of the text's variables, without `$` and braces.
std::vector<std::string_view> variables_in(std::string_view text);

/// Whether the text has this variable.
bool has_variable_named(std::string_view text, std::string_view name) noexcept;

/// Whether a text without variables is the name of one that keys are made of, such as
/// `remote_addr`.
bool names_variable(std::string_view text) noexcept;

}  // namespace ratelimit

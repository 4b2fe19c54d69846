#pragma once

#include "limit/policy.h"

#include <span>
#include <string>

namespace ratelimit {

/// The text of the script that decides limits of these algorithms, in any order and repeated or
/// not, in one call: put together from the files of lua/. One limit has a script of its own, which
/// does not pay for the general one. Equal sets give equal texts.
std::string single_script(Algorithm algorithm);
std::string several_script(std::span<const Algorithm> algorithms);

/// As several_script, but nothing is written: what it answers is what would be.
std::string peek_script(std::span<const Algorithm> algorithms);

/// The text of the script that gives back what checks of any algorithm took.
std::string refund_script();

}  // namespace ratelimit

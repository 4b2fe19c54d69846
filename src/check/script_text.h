#pragma once

#include "limit/policy.h"

#include <span>
#include <string>

namespace ratelimit {

/// The text of the script that decides limits of these algorithms, in any order and repeated or
/// not, in one call: put together from the files of lua/, which say what each script takes and
/// returns. One limit has a script of its own, which does not pay for the general one. Equal sets
/// give equal texts.
std::string single_script(Algorithm algorithm);
std::string several_script(std::span<const Algorithm> algorithms);

/// As several_script, but it writes nothing: it answers what would be.
std::string peek_script(std::span<const Algorithm> algorithms);

/// The text of the script that refunds what checks of any algorithm counted.
std::string refund_script();

}  // namespace ratelimit

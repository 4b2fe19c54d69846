#pragma once

#include <string_view>

namespace ratelimit {

/// Of the module and of ratelimit-rehearse.
inline constexpr std::string_view version = "0.1.0";

}  // namespace ratelimit

#pragma once

#include <string_view>

namespace ratelimit::http {

inline constexpr std::string_view version = "0.1.0";

}  // namespace ratelimit::http

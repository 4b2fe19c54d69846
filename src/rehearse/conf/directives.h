#pragma once

#include "rehearse/conf/conf_text.h"

#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// Of nginx's rewrite module, whose directives are executed in their order.
bool is_rewriting(const Directive& one) noexcept;

/// Whether these may end before what follows them.
bool may_leave(const std::vector<const Directive*>& rewrites) noexcept;

/// Whether it answers the requests of a location: `proxy_pass`, `stub_status` and the like.
bool is_handler(const Directive& one) noexcept;

/// Whether the module has a directive of this name (doc/reference.md).
bool is_of_module(std::string_view name) noexcept;

/// Directives that may answer a request before its limits without a trace in the log, or whose
/// answers are decisions about other requests.
bool is_not_followed(const Directive& one) noexcept;

}  // namespace ratelimit::rehearse

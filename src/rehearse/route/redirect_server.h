#pragma once

#include "rehearse/conf/conf_text.h"

#include <string>
#include <vector>

namespace ratelimit::rehearse {

struct RequestFacts;
class Values;

/// A server that redirects clients to one with limits, as that of port 80 to that of port 443. Both
/// may write into one log.
struct RedirectServer {
    const Directive* directive = nullptr;  // null: there is none
    std::vector<int> statuses;             // of its redirects
    bool by_scheme = false;                // $scheme tells which of both answered

    /// Whether the log does not tell what it answered.
    bool is_doubtful(const RequestFacts& facts) const noexcept;
    /// Whether it has answered a request.
    bool answered(Values& values, const RequestFacts& facts) const;
};

}  // namespace ratelimit::rehearse

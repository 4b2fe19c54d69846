#pragma once

#include "rehearse/surroundings.h"
#include "rehearse/variables.h"

namespace ratelimit::rehearse {

/// A status with which a file is answered.
inline bool is_success(int status) noexcept
{
    return status == 200 || status == 206 || status == 304;
}

/// What a log says of a request and of what nginx did with it.
struct RequestFacts {
    /// Call before LogFormat::want.
    explicit RequestFacts(Variables& variables);

    /// $status; 0: not known.
    int status_of(Values& values) const;
    /// Whether its method meets a `limit_except`.
    bool is_method(Values& values, const LimitExcept& limit) const;
    /// Whether nginx answered with a file of the current path.
    bool file_found(Values& values) const;
    /// nginx answers 400 to HTTP/1.1 without a Host header.
    bool lacks_host(Values& values) const;

    // Null: the log does not have it.
    const Variable* path;
    const Variable* args;
    const Variable* address;
    const Variable* status;
    const Variable* method;
    const Variable* host_header = nullptr;  // also null if there is no `line`
    const Variable* line = nullptr;
    const Variable* upstream = nullptr;    // empty where no upstream was asked
    const Variable* final_path = nullptr;  // $uri at the end of the request; null: `path` is it
};

}  // namespace ratelimit::rehearse

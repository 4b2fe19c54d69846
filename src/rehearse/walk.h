#pragma once

#include "rehearse/route.h"

namespace ratelimit::rehearse {

inline constexpr int most_turns = 10;  // as NGX_HTTP_MAX_URI_CHANGES

inline bool is_success(int status) noexcept
{
    return status == 200 || status == 206 || status == 304;
}

/// A request on its way.
struct Router::Walk {
    Walk(Values& its_values, const ServerConf& its_server) : values(its_values), server(its_server)
    {
    }

    Values& values;
    const ServerConf& server;
    const Location* location = nullptr;
    Route route;
    int turns = 0;                // changes of the path, and redirects
    bool has_error_page = false;  // nginx takes one for a request

    Next end(Reached reached) noexcept
    {
        route.reached = reached;
        return Next::done;
    }
};

}  // namespace ratelimit::rehearse

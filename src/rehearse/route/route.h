#pragma once

#include "rehearse/route/walk.h"

namespace ratelimit::rehearse {

/// Follows a request through its server, in the order of nginx's phases: rewrite, location, access,
/// limits and content. Which files exist is a question of Values: each course that the answers give
/// is followed to its end, which is compared with the log. Whether nginx refused a request by
/// itself, or an upstream had an error, is a question of the same kind.
class Router {
public:
    explicit Router(const RequestFacts& facts) : facts_(facts) {}

    /// Follows the course that was begun. `limit_reqs`: of Walk.
    Walk follow(Values& values, const ServerConf& server, LimitReqs* limit_reqs) const;

    /// The status tells what limit_req refused: the log is not exact enough to compute it.
    void trust_status() noexcept { trusts_status_ = true; }

private:
    using Next = Walk::Next;

    bool of_other_server(Values& values, const ServerConf& server) const;
    static void set_captures(const Location& location, Walk& walk);
    static Next refuse(Walk& walk, Reached reached, int code);
    Next unreadable(Walk& walk) const;
    Next limit_req(Walk& walk) const;
    static Next rewritten(Walk& walk, const RewriteProgram& program);
    Next find_location_of(Walk& walk) const;
    Next in_location(Walk& walk) const;
    Next access(Walk& walk) const;
    static Next limits(Walk& walk);

    const RequestFacts& facts_;
    bool trusts_status_ = false;
};

}  // namespace ratelimit::rehearse

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

    /// Begin a course of the request before. `limit_reqs` decides on the way.
    Route find(Values& values, const ServerConf& server, LimitReqs& limit_reqs) const;

    /// Walk::differences of the course that was begun.
    unsigned differences(Values& values, const ServerConf& server) const;

    /// Whether there can be questions about requests of the server that the log does not answer
    /// (Values::in_doubt). Call after compile_routes.
    bool may_doubt(const ServerConf& server) const;

    /// The status tells what limit_req refused: the log is not exact enough to compute it.
    void trust_status() noexcept { trusts_status_ = true; }

private:
    using Next = Walk::Next;

    Walk follow(Values& values, const ServerConf& server, LimitReqs* limit_reqs) const;
    bool of_other_server(Values& values, const ServerConf& server) const;
    static void set_captures(const Location& location, Walk& walk);
    static Next refuse(Walk& walk, Reached reached, int code);
    Next unreadable(Walk& walk) const;
    Next limit_req(Walk& walk) const;
    static Next rewritten(Walk& walk, const RewriteProgram& program);
    Next find_location_of(Walk& walk) const;
    Next in_location(Walk& walk) const;
    Next around(Walk& walk) const;
    Next access(Walk& walk, const Surroundings& around) const;

    const RequestFacts& facts_;
    bool trusts_status_ = false;
};

}  // namespace ratelimit::rehearse

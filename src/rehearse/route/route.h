#pragma once

#include "rehearse/route/http_conf.h"
#include "rehearse/values/request_facts.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// Where a request ends up.
enum class Reached : std::uint8_t {
    limits,
    none,            // no limit is in force there
    malformed,       // nginx answers 400 or 405
    rewrite,         // `return`, a redirect, or a loop of them
    internal,        // `internal`: 404
    too_large,       // `client_max_body_size`: 413
    denied,          // `deny`
    authentication,  // `auth_basic`, `auth_request`
    limit_req,       // limit_req or limit_conn
};
inline constexpr std::size_t reached_kinds = 9;
/// Of reports: "deny".
std::string_view place_name(Reached reached) noexcept;

struct Route {
    Reached reached = Reached::none;
    const Plan* plan = nullptr;  // of Reached::limits
    // The result of nginx's own limit before.
    LimitReqs::Result limit_req = LimitReqs::Result::unlimited;
};

/// Follows a request through its server, in the order of nginx's phases: rewrite, location,
/// access, limits, try_files, index, error_page, and internal redirects. What a log does not say
/// (which files exist, whether a client had a password) is taken from the status and the upstream
/// that it has.
class Router {
public:
    explicit Router(const RequestFacts& facts) : facts_(facts) {}

    /// Call Values::begin before, or another function of it that begins a course of the request.
    /// `limit_reqs` decides on the way.
    Route find(Values& values, const ServerConf& server, LimitReqs& limit_reqs) const;

    /// Whether there can be questions about requests of the server that the log does not answer
    /// (Values::in_doubt). Call after compile_routes.
    bool may_doubt(const ServerConf& server) const;

    /// The status tells what limit_req refused: the log is not exact enough to compute it.
    void trust_status() noexcept { trusts_status_ = true; }

private:
    static constexpr int most_turns = 10;  // as NGX_HTTP_MAX_URI_CHANGES

    /// The next step of a request.
    enum class Next : std::uint8_t {
        stay,    // the next phase
        find,    // the location of a path that was changed
        named,   // the named location that was found
        server,  // an internal redirect: the phases of the server
        done,
    };
    /// A request on its way.
    struct Walk {
        Values& values;
        const ServerConf& server;
        LimitReqs& limit_reqs;
        const Location* location = nullptr;
        Route route{};
        int turns = 0;                // changes of the path, and redirects
        int upstreams = 0;            // that were asked
        bool has_error_page = false;  // nginx takes one for a request
        bool is_counted = false;      // limit_req has counted it, which it does once for a request
        bool is_cut = false;          // the length of its body was checked: once for a request

        Next end(Reached reached) noexcept
        {
            route.reached = reached;
            return Next::done;
        }
    };

    bool of_other_server(Values& values, const ServerConf& server) const;
    static void set_captures(const Location& location, Walk& walk);
    Reached limit_req(Walk& walk) const;
    Next rewritten(Walk& walk, const RewriteProgram& program) const;
    Next find_location_of(Walk& walk) const;
    Next in_location(Walk& walk) const;
    Reached around(Walk& walk) const;
    Reached access(Walk& walk, const Surroundings& around) const;
    Next content(Walk& walk) const;
    Next try_files(Walk& walk) const;
    bool is_of_files(const Walk& walk, std::string_view target) const;
    Next index(Walk& walk) const;
    Next error_page(Walk& walk, int status) const;
    Next redirect(Walk& walk, std::string_view target) const;

    const RequestFacts& facts_;
    bool trusts_status_ = false;
};

}  // namespace ratelimit::rehearse

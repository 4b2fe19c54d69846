#pragma once

#include "rehearse/route/http_conf.h"
#include "rehearse/values/request_facts.h"

#include <cstdint>
#include <string_view>

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

/// A request on its way through a server: the content of a location (try_files, index, an upstream
/// or a file), pages of errors and internal redirects. Which files exist is a question of Values.
/// At the end of the course that the answers give, nginx would have logged a path, a status, and an
/// upstream or none.
struct Walk {
    /// The next step.
    enum class Next : std::uint8_t {
        stay,    // the next phase
        find,    // the location of a path that was changed
        named,   // the named location that was found
        server,  // an internal redirect: the phases of the server
        done,
    };

    Values& values;
    const ServerConf& server;
    const RequestFacts& facts;
    LimitReqs* limit_reqs;  // null: it is followed as it went then, to compare it with the log
    const Location* location = nullptr;
    Route route{};
    bool is_counted = false;          // limit_req has counted it, which it does once for a request
    bool is_body_checked = false;     // its length: once for a request
    std::size_t first_questions = 0;  // those that are not about its way within the server
    int turns = 0;                    // changes of the path, and redirects
    int upstreams = 0;                // that were asked
    bool has_error_page = false;      // nginx takes one for a request
    int status = 0;                   // that the log then has; 0: any
    int kept_status = 0;              // the same, of an error that has a page; 0: none
    bool may_be_cached = false;       // an upstream's answer: then none was asked
    bool may_differ = false;          // whatever the log has

    /// It ends there, unless an internal redirect follows.
    Next end(Reached reached) noexcept
    {
        route.reached = reached;
        return Next::done;
    }
    /// Its path was changed. Ends it if that happens too often.
    Next changed(Next next) noexcept;
    /// Whether nginx answered here by itself with this status. It is a question of Values if the
    /// log has the status, or if a page may hide it. `likely`: the answer in the first case.
    bool answered(int code, const Directive* one, std::string_view reason, bool likely = true);
    /// Limits are in force, and end the way. If it is followed as it went then, they have let the
    /// request pass, or have refused it with their status.
    Next limited();
    /// Goes to the content of the location.
    Next content();
    /// nginx answers with a status, which may have a page; 0: it is not known.
    Next error_page(int code);
    /// nginx answers with a status and a text, which have no page.
    Next ends_with(int code) noexcept;

    static constexpr unsigned other_status = 1;
    static constexpr unsigned other_path = 2;
    static constexpr unsigned other_upstreams = 4;
    /// The sum of the differences between the log and the log of a request that went this way.
    unsigned differences() const;

private:
    static constexpr int most_turns = 10;  // as NGX_HTTP_MAX_URI_CHANGES
    // Answers of the static module.
    static constexpr int of_file = 200;  // also 206, 304 and the like
    static constexpr int moved_to_folder = 301;
    static constexpr int moved_elsewhere = 302;  // an error_page with a URL
    static constexpr int forbidden = 403;        // a folder without an index
    static constexpr int not_found = 404;
    static constexpr int not_allowed = 405;
    static constexpr int any_of_file = 1;  // of_file, moved_to_folder, forbidden or not_found

    const Location& here() const { return location == nullptr ? server.top : *location; }
    const Directive* asker(const Directive* one) const noexcept;
    const ErrorPage* page_of(int code) const;
    Next follow(const ErrorPage& page);
    Next redirect(std::string_view target);
    Next handle();
    Next upstream();
    Next file();
    Next index();
    Next try_files();
};

}  // namespace ratelimit::rehearse

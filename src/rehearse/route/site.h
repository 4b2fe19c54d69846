#pragma once

#include "rehearse/route/http_conf.h"
#include "rehearse/route/route.h"
#include "rehearse/route/server_names.h"

#include <optional>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// Finds the limits of a request: its server, its location, and what they inherit.
class Site {
public:
    /// `server`: a name, if all requests are of that server. Throws InputError if the log does not
    /// say what has to be known.
    Site(
        HttpConf& conf, Variables& variables, const RequestFacts& facts, const std::string& server);

    struct Ways {
        std::vector<Values::Answers> answers{ {} };  // to the doubts of each
        bool fit = true;  // they end with the path and the number of upstreams of the log
        // Of the only way, which has been followed up to its limits; empty: call `find`.
        std::optional<Route> route;
    };
    /// The ways of a request that differ least from the log, the likely one first. Of a hundred
    /// that it can go, if there are more.
    Ways ways(Values& values) const;
    /// Where a request ends up, in the course that was begun.
    Route find(Values& values, LimitReqs& limit_reqs) const;

    /// The server of all requests; null: they are of several.
    const ServerConf* only() const noexcept { return only_; }
    bool by_name() const noexcept { return by_name_; }  // it has the name that the user gave
    /// Whether a limit needs to know when requests begin and end.
    bool has_concurrency() const noexcept { return has_concurrency_; }
    /// Directives that are not followed, with file and line.
    const std::vector<std::string>& warnings() const noexcept { return warnings_; }

private:
    void choose_by_host();
    const ServerConf* only_server(const std::string& server) const;
    void check_path() const;
    void compile();
    void compile_limits(Location& location);
    void compile_limit_reqs(Location& location);
    void check_duration(const ZoneConf& zone);
    void check_maps(const LimitConf& limit, const ZoneConf& zone);
    void check_exactness();
    const ServerConf* server_of(Values& values) const;

    HttpConf& conf_;
    Variables& variables_;
    const RequestFacts& facts_;
    Scope scope_;
    Router router_;
    const ServerConf* only_ = nullptr;    // the server of all requests
    const Variable* host_ = nullptr;      // else
    const Variable* captured_ = nullptr;  // the host, if `host_` is $server_name
    bool by_name_;
    ServerNames names_;
    bool has_concurrency_ = false;
    const LimitReqConf* limit_req_ = nullptr;  // one that is followed
    std::vector<std::string> warnings_;
};

}  // namespace ratelimit::rehearse

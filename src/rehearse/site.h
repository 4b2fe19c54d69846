#pragma once

#include "rehearse/http_conf.h"
#include "rehearse/server_names.h"

#include <string>

namespace ratelimit::rehearse {

/// Finds the limits of a request: its server, its location, and what they inherit.
class Site {
public:
    /// `server`: a name, if all requests are of that server. Throws InputError if the log does not
    /// say what has to be known.
    Site(HttpConf& conf, Variables& variables, const std::string& server);

    /// Null: the request reaches no limit.
    const Plan* find(Values& values) const;

    /// The server of all requests; null: they are of several.
    const ServerConf* only() const noexcept { return only_; }

    /// Whether a limit needs to know when requests begin and end.
    bool has_concurrency() const noexcept { return has_concurrency_; }

private:
    void choose_by_host(const HttpConf& conf);
    const ServerConf* only_server(const HttpConf& conf, const std::string& server) const;
    void compile(const HttpConf& conf, const ServerConf& server, Location& location);
    void check_duration(const ZoneConf& zone);
    const ServerConf* server_of(Values& values) const;

    Variables& variables_;
    std::vector<std::unique_ptr<Scope>> scopes_;
    std::vector<const ServerConf*> servers_;
    const ServerConf* only_ = nullptr;  // the server of all requests
    const Variable* host_ = nullptr;    // else
    const Variable* path_ = nullptr;    // null: all locations of a server have the same limits
    ServerNames names_;
    bool has_concurrency_ = false;
};

}  // namespace ratelimit::rehearse

#pragma once

#include "rehearse/count/plan.h"
#include "rehearse/log/log_format.h"
#include "rehearse/route/locations.h"
#include "rehearse/values/variables.h"

#include <memory>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

struct ServerConf {
    std::vector<std::string> names;
    bool is_default = false;
    bool has_limits = false;                // a request of it may reach one
    bool has_upstreams = false;             // a location of it has one
    bool only_tls = false;                  // it answers only requests over TLS
    const Directive* redirector = nullptr;  // of redirects_to
    Location top;

    /// What it is called in reports: its first name, or where it is written.
    std::string title() const;
};

/// All of an nginx.conf that matters to limits. What stands outside of http {} counts as in it, so
/// that a file of conf.d can be given alone.
struct HttpConf {
    std::vector<Directive> text;  // the text that the others refer to
    Definitions definitions;
    std::vector<ZoneConf> zones;
    std::vector<LimitConf> limits;  // by LimitConf::number
    std::vector<LimitReqZone> limit_req_zones;
    std::vector<LimitReqConf> limit_reqs;  // by LimitReqConf::number
    std::vector<std::unique_ptr<ServerConf>> servers;
    std::vector<NamedFormat> formats;
    std::vector<std::string> warnings;  // about directives that are not followed
};

/// Throws InputError.
std::unique_ptr<HttpConf> read_http_conf(std::vector<Directive> text);

}  // namespace ratelimit::rehearse

#pragma once

#include "rehearse/run.h"

#include <string>

namespace ratelimit::rehearse {

/// --discover: which limits could stand where there are none yet. The busiest paths, for each the
/// share of clients that quotas would refuse, and lines for nginx.conf.
struct Discovery {
    struct Cell {
        std::string rate;  // "10r/m"
        std::uint64_t clients_refused = 0;
    };
    struct Path {
        std::string location;  // "/api/", "= /login"
        std::string zone;
        std::uint64_t requests = 0;
        std::uint64_t clients = 0;
        std::vector<std::vector<Cell>> table;  // by quota, then by window: 1s, 1m, 1h
        std::string rate;                      // the smallest that refuses few enough clients
        std::uint64_t clients_refused = 0;     // by this rate
    };

    double share = 0;  // of the clients that `rate` may refuse
    std::vector<Path> paths;
    std::unique_ptr<Run> run;  // the run that found them
};

/// Reads the logs twice. Throws InputError. `settings` has no configuration.
Discovery discover(Settings settings, const Watch& watch);

/// For people, and for programs.
std::string text_report(const Discovery& discovery);
std::string json_report(const Discovery& discovery);

}  // namespace ratelimit::rehearse

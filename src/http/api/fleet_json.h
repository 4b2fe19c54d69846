#pragma once

#include "conf/conf.h"
#include "fleet/nodes_call.h"
#include "limit/json_text.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ratelimit::http {

/// Makes the text of /fleet in many parts, each of which takes some 0.2 ms: a large fleet would
/// delay other requests. The work is bounded whatever is in Redis: see NodesReader and ZoneSums.
class FleetJson {
public:
    /// `connected`: the list is of Redis, which takes this node's reports.
    FleetJson(MainConf& conf, fleet::NodeList list, bool connected);
    FleetJson(const FleetJson&) = delete;
    FleetJson& operator=(const FleetJson&) = delete;

    /// Makes one part. True: there is more to do. Not to be called again after false.
    bool step();

    std::string text() && { return json_.finish(); }

private:
    enum class Part : std::uint8_t { reports, nodes, sums, zones, past, happened };

    void begin();
    bool write_nodes();
    bool write_zones();
    void collect_past();
    bool merge_past();
    bool write_happened();

    MainConf& conf_;
    const bool connected_;
    Part part_ = Part::reports;
    fleet::NodesReader reader_;
    fleet::FleetHistories history_;
    fleet::ZoneSums sums_;  // of the reader's nodes
    fleet::Happenings past_;
    std::vector<fleet::Happening> happened_;
    std::size_t node_ = 0;  // that is written next; so is the happening
    std::size_t happening_ = 0;
    JsonText json_;
};

}  // namespace ratelimit::http

#include "rehearse/log_time.h"
#include "rehearse/report.h"

#include <nlohmann/json.hpp>

namespace ratelimit::rehearse {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const LimitReport& limit, double share)
{
    Json busiest = Json::array();
    for (const BusyKey& busy : limit.busiest) {
        busiest.push_back({ { "key", busy.key },
                            { "requests", busy.count.requests },
                            { "refused", busy.count.refused } });
    }
    Json out = { { "zone", limit.zone },         { "location", limit.location },
                 { "requests", limit.requests }, { "refused", limit.refused },
                 { "keys", limit.keys },         { "keys_refused", limit.keys_refused },
                 { "busiest", busiest } };
    if (limit.worst.requests == 0) {
        out["worst_minute"] = nullptr;
    } else {
        out["worst_minute"] = { { "time", utc_text(limit.worst.minute * 60).text },
                                { "requests", limit.worst.requests },
                                { "refused", limit.worst.refused } };
    }
    if (limit.suggested && limit.suggested->quota) {
        const std::string& rate = limit.suggested->rate;
        out["suggested"] = { { "share", share },
                             { "quota", limit.suggested->quota->quota },
                             { "rate", rate.empty() ? Json() : Json(rate) },
                             { "keys_refused", limit.suggested->quota->keys_refused } };
    } else if (limit.suggested) {
        out["suggested"] = nullptr;
    }
    return out;
}

}  // namespace

std::string json_report(const Report& report)
{
    Json limits = Json::array();
    for (const LimitReport& limit : report.limits) {
        limits.push_back(json_of(limit, report.share));
    }
    Json reached;
    for (std::size_t i = 0; i < reached_kinds; ++i) {
        reached[std::string(name_of(static_cast<Reached>(i)))] = report.reached[i];
    }
    const Json all = { { "lines", report.counts.lines },
                       { "skipped", report.counts.skipped },
                       { "usable", report.problems.empty() },
                       { "problems", report.problems },
                       { "requests", reached },
                       { "limits", limits } };
    // A location or a server's name may be no UTF-8.
    return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ratelimit::rehearse

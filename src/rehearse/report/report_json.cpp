#include "rehearse/count/key_hash.h"
#include "rehearse/log/log_time.h"
#include "rehearse/report/report.h"

#include <nlohmann/json.hpp>

namespace ratelimit::rehearse {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::vector<RefusedKey>& keys)
{
    Json out = Json::array();
    for (const RefusedKey& one : keys) {
        out.push_back({ { "key", one.key },
                        { "refused", one.refused },
                        { "succeeded", one.succeeded },
                        { "first", utc_text(one.first / 1'000'000) },
                        { "path", printable(one.main_path()) },
                        { "user_agent", printable(one.agent.get()) } });
    }
    return out;
}

Json json_of(const TotalReport& total)
{
    const Totals& counts = total.counts();
    Json out = { { "requests", counts.requests },
                 { "refused", counts.refused },
                 { "succeeded", total.has_status() ? Json(counts.succeeded) : Json() } };
    if (total.subject->doubtful() > 0) {
        const Bounds& bounds = *total.subject->bounds();
        out["doubtful"] = total.subject->doubtful();
        out["may_meet"] = bounds.requests();
        out["refused_between"] = { bounds.least_refused(), bounds.most_refused() };
    }
    out["clients"] = total.has_clients() ? Json(total.clients.keys) : Json();
    out["clients_refused"] = total.has_clients() ? Json(total.clients.keys_refused) : Json();
    out["refused_clients"] = json_of(total.refused_clients);
    return out;
}

Json json_of(const AgainstReport& against)
{
    Json before = json_of(against.before);
    before.erase("refused_clients");
    return { { "before", before },
             { "newly", against.newly },
             { "no_longer", against.no_longer },
             { "newly_refused", json_of(against.newly_refused) },
             { "no_longer_refused", json_of(against.no_longer_refused) } };
}

Json json_of(const LimitReport& limit, double share)
{
    const LimitResult& result = *limit.result;
    Json busiest = Json::array();
    for (const BusyKey& busy : limit.busiest) {
        busiest.push_back({ { "key", busy.key },
                            { "requests", busy.count.requests },
                            { "refused", busy.count.refused } });
    }
    Json out = { { "directive", limit.of_nginx ? "limit_req" : "ratelimit" },
                 { "zone", limit.zone },
                 { "location", limit.location },
                 { "requests", result.requests },
                 { "refused", result.refused },
                 { "keys", limit.keys.keys },
                 { "keys_refused", limit.keys.keys_refused },
                 { "busiest", busiest },
                 { "succeeded", result.succeeded },
                 { "top_refused", json_of(limit.refused_keys) } };
    const MinuteCount worst = result.minutes.worst();
    if (worst.requests == 0) {
        out["worst_minute"] = nullptr;
    } else {
        out["worst_minute"] = { { "time", utc_text(worst.minute * 60) },
                                { "requests", worst.requests },
                                { "refused", worst.refused } };
    }
    if (limit.suggested && limit.suggested->quota > 0) {
        const std::string& rate = limit.suggested->rate;
        out["suggested"] = { { "share", share },
                             { "quota", limit.suggested->quota },
                             { "rate", rate.empty() ? Json() : Json(rate) },
                             { "keys_refused", limit.suggested->keys_refused } };
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
        reached[std::string(place_name(static_cast<Reached>(i)))] =
            report.total.counts().reached[i];
    }
    Json all = { { "lines", report.counts.lines },
                 { "skipped", report.counts.skipped() },
                 { "usable", report.problems.empty() },
                 { "problems", report.problems },
                 { "requests", reached },
                 { "failed", report.failures },
                 { "total", json_of(report.total) },
                 { "limits", limits } };
    if (report.against) {
        all["against"] = json_of(*report.against);
    }
    // A location or a server's name may be no UTF-8.
    return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ratelimit::rehearse

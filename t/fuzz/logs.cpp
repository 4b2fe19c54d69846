// Lines of logs: text of any format, JSON, and the variables that are computed from them.

#include "fuzz.h"

#include "rehearse/count/rehearsal.h"
#include "rehearse/route/site.h"

using namespace ratelimit::rehearse;

namespace {

/// Each variable that is computed is part of a key.
constexpr std::string_view conf_text = R"conf(
    map $http_user_agent $agent { default other; "~*(bot|x)(.*)" "$1-$2"; }
    geo $where { default far; 10.0.0.0/8 near; 2001:db8::/32 six; }
    ratelimit_zone "$ratelimit_client $agent $where" zone=a rate=3r/s;
    ratelimit_zone "$uri $arg_a $args $request_method$is_args" zone=b rate=$arg_r
        algorithm=sliding_window_log;
    ratelimit_zone $binary_remote_addr zone=c rate=2r/2s algorithm=gcra burst=3;
    location / { ratelimit zone=a cost=$arg_c; ratelimit zone=b shadow; }
    location ~ "^/x/(?<name>[^/]*)" { ratelimit zone=c charge=$status; }
)conf";

/// Requests at one time, which are decided in the order of their beginnings.
constexpr std::string_view concurrency_text = R"conf(
    ratelimit_zone $k zone=a concurrency=3 hold=1s;
    ratelimit_zone k zone=b concurrency=5;
    ratelimit zone=a cost=$c;
    ratelimit zone=b;
)conf";
constexpr std::string_view concurrency_format = "$msec $request_time $k $c";

/// Decides the lines of a log.
void decide(HttpConf& conf, LogFormat& format, std::string_view lines)
{
    Variables variables(format, conf.definitions);
    const RequestFacts facts(variables);
    const Site site(conf, variables, facts, "");
    LimitReqs limit_reqs(conf.limit_req_zones, conf.limit_reqs.size(), {}, facts);
    format.begin(false, site.has_concurrency());
    Rehearsal rehearsal(conf.zones, conf.limits, {}, facts);
    Values values(format.escape());
    Record record;
    std::int64_t now = 0;
    while (!lines.empty()) {
        const auto end = std::min(lines.find('\n'), lines.size());
        if (format.read(lines.substr(0, end), record)) {
            must(record.time >= 0 && record.time <= record.end);
            now = std::max(now, record.time);
            values.begin(record);
            if (const Plan* plan = site.find(values, limit_reqs).plan) {
                rehearsal.decide(*plan, values, now);
            }
        }
        lines.remove_prefix(std::min(end + 1, lines.size()));
    }
    for (std::size_t i = 0; i < conf.limits.size(); ++i) {
        const LimitResult& result = rehearsal.results()[i];
        const auto numbers = rehearsal.decider().numbers(i);
        must(result.refused <= result.requests && numbers.keys_refused <= numbers.keys);
        must(numbers.keys <= result.requests);
        must(rehearsal.decider().busiest(i).size() <= numbers.keys);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const auto lines = text_of(data, size);
    static const auto conf = read_http_conf(parse_conf(conf_text, "fuzz"));
    const auto combined = text_format(combined_format, Escape::standard, "combined");
    decide(*conf, *combined, lines);
    static const auto concurrency = read_http_conf(parse_conf(concurrency_text, "fuzz"));
    const auto timed = text_format(concurrency_format, Escape::standard, "timed");
    decide(*concurrency, *timed, lines);
    if (const auto json = json_format({ std::string(lines.substr(0, lines.find('\n'))) })) {
        try {
            decide(*conf, *json, lines);
        } catch (const InputError&) {
            // The first line does not have all members.
        }
    }
    std::string out;
    for (const Escape escape : { Escape::standard, Escape::json, Escape::none }) {
        unescape(lines, escape, out);
        must(out.size() <= lines.size());
    }
    return 0;
}

#include "rehearse/run.h"

#include "rehearse/address.h"
#include "rehearse/key_hash.h"
#include "rehearse/merge.h"
#include "rehearse/site.h"

#include <algorithm>
#include <cstdio>

namespace ratelimit::rehearse {

namespace {

using Streams = std::vector<std::unique_ptr<LogStream>>;

std::unique_ptr<LogFormat> named_format(const Settings& settings, const HttpConf& conf)
{
    if (settings.format.find('$') != std::string::npos) {
        return text_format(settings.format, Escape::standard, "the log format");
    }
    if (auto found = conf.log_format(settings.format)) {
        return found;
    }
    if (settings.format == "combined") {
        return text_format(combined_format, Escape::standard, "the log format \"combined\"");
    }
    throw InputError(
        "--format: invalid \"" + settings.format
        + "\", expected combined, the name of a log_format "
          "in "
        + settings.conf + ", or a format with variables");
}

/// By the options, else by the first line of the first log that has one.
std::unique_ptr<LogFormat> format_of(
    const Settings& settings, const HttpConf& conf, Streams& streams)
{
    std::string_view first;
    for (const auto& stream : streams) {
        if (first.empty() && settings.log_format != "text" && settings.format.empty()) {
            first = stream->first_line();
        }
    }
    const bool json =
        settings.log_format == "json" || (settings.log_format.empty() && first.starts_with('{'));
    if (json && !first.empty()) {
        auto format = json_format(first);
        if (format == nullptr) {
            throw InputError("the first line of the log is no JSON object");
        }
        return format;
    }
    if (!settings.format.empty()) {
        return named_format(settings, conf);
    }
    return text_format(combined_format, Escape::standard, "the log format \"combined\"");
}

/// $binary_remote_addr and $ratelimit_client are shown as addresses.
std::string shown_key(const std::string& key, const std::string& expression, unsigned ipv6_prefix)
{
    const bool client = expression == "$ratelimit_client" || expression == "${ratelimit_client}";
    const bool binary =
        expression == "$binary_remote_addr" || expression == "${binary_remote_addr}";
    if (client || binary) {
        const std::string text = address_text(key);
        constexpr unsigned ipv6_bits = 128;
        if (!text.empty()) {
            return client && key.size() > 4 && ipv6_prefix < ipv6_bits
                ? text + "/" + std::to_string(ipv6_prefix)
                : text;
        }
    }
    return printable(key);
}

std::string policy_text(const LimitTitle& title, const ZoneConf& zone)
{
    if (counts_at_one_time(title.policy.algorithm)) {
        return "concurrency, " + std::to_string(title.policy.rate.quota) + " at one time";
    }
    std::string out(name_of(title.policy.algorithm));
    out += ", " + (title.variable_rate ? zone.rate_text : rate_text(title.policy.rate));
    if (title.policy.burst) {
        out += ", burst " + std::to_string(*title.policy.burst);
    }
    if (title.policy.block.count() > 0) {
        out += ", block " + std::to_string(title.policy.block / std::chrono::seconds{ 1 }) + "s";
    }
    return out;
}

LimitReport report_of(Run& run, std::size_t number, const Settings& settings)
{
    const LimitTitle& title = run.conf->titles[number];
    const ZoneConf& zone = run.conf->zones[title.zone];
    LimitResult& result = run.rehearsal->results()[number];
    const auto keys = run.rehearsal->numbers(number);
    LimitReport out;
    out.zone = zone.name;
    out.location = title.location;
    out.policy = policy_text(title, zone);
    out.shadow = title.shadow;
    out.limit = title.variable_rate ? 0 : title.policy.limit();
    out.requests = result.requests;
    out.refused = result.refused;
    out.delayed = result.delayed;
    out.malformed = result.malformed;
    out.keys = keys.keys;
    out.keys_refused = keys.keys_refused;
    out.exact = run.rehearsal->exact(number);
    out.least_left = result.least_left;
    out.worst = result.minutes.worst();
    out.minutes = &result.minutes.all();
    out.busiest = run.rehearsal->busiest(number);
    for (BusyKey& busy : out.busiest) {
        busy.key = shown_key(busy.key, zone.key, run.conf->definitions.ipv6_prefix);
    }
    if (settings.share && result.trace != nullptr) {
        LimitReport::Suggested suggested;
        suggested.quota = suggest(*result.trace, title.policy, *settings.share, keys.keys);
        if (suggested.quota && !counts_at_one_time(title.policy.algorithm)) {
            suggested.rate = rate_text({ suggested.quota->quota, title.policy.rate.window });
        }
        out.suggested = suggested;
    }
    return out;
}

std::string number_text(std::uint64_t number, const char* what)
{
    return std::to_string(number) + (number == 1 ? " line " : " lines ") + what;
}

/// In which order the lines are decided.
struct Order {
    std::int64_t bound = 0;  // us: how far they may be out of it
    bool arrival = false;    // by the beginning of the request, not by its end
};

/// What the user should know of lines that are further behind than the bound.
std::string late_text(const LineCounts& counts, const Order& order)
{
    constexpr std::int64_t second = 1'000'000;
    constexpr std::int64_t largest_bound = 86'400 * second;
    char bound[32];
    std::snprintf(bound, sizeof(bound), "%.3gs", static_cast<double>(order.bound) / second);
    std::string out = order.arrival
        ? std::string("skipped: their requests began more than ") + bound + " before others; "
        : std::string("skipped: more than ") + bound + " behind; ";
    return out
        + (counts.latest < largest_bound ? "all would be used with --reorder "
                   + std::to_string(counts.latest / second + 1) + "s"
                                         : "--reorder is at most 1d");
}

/// What the user should know of lines that were not used.
void warn_of_skipped(const LineCounts& counts, const Order& order, std::vector<std::string>& out)
{
    if (counts.broken > 0) {
        out.push_back(
            number_text(counts.broken, "skipped: they do not have the log's format; the first is: ")
            + printable(counts.first_broken));
    }
    if (counts.too_long > 0) {
        out.push_back(number_text(counts.too_long, "skipped: longer than 1 MB"));
    }
    if (counts.wrong_time > 0) {
        out.push_back(number_text(
            counts.wrong_time,
            "skipped: their time is more than an hour ahead of the lines around"));
    }
    if (counts.late > 0) {
        out.push_back(number_text(counts.late, late_text(counts, order).c_str()));
    }
    if (counts.crowded > 0) {
        out.push_back(number_text(
            counts.crowded,
            "skipped: too many other lines lie between the time that they belong to and their "
            "place"));
    }
}

/// Decides all requests.
Order read_all(
    Run& run, const Settings& settings, Streams& streams,
    const std::function<void(const Progress&)>& progress)
{
    LineCounts& counts = run.report.counts;
    const auto format = format_of(settings, *run.conf, streams);
    Variables variables(*format, run.conf->definitions);
    const Site site(*run.conf, variables, settings.server);
    constexpr std::int64_t second = 1'000'000;
    const Order order{ settings.reorder.value_or((site.has_concurrency() ? 60 : 2) * second),
                       settings.arrival || site.has_concurrency() };
    format->want(variables.wanted(), order.arrival);
    Values values(format->escape());
    Merge merge(streams, *format, order.bound, counts);

    Progress now;
    for (const auto& stream : streams) {
        now.all_bytes += stream->reader().size();
    }
    constexpr std::uint64_t pause = 16'384;  // records between two calls of `progress`
    std::uint64_t records = 0;
    while (const Record* record = merge.next()) {
        values.begin(*record);
        if (run.report.first_time < 0) {
            run.report.first_time = record->time;
        }
        run.report.last_time = record->time;
        if (const Plan* plan = site.find(values)) {
            run.rehearsal->decide(*plan, values, record->time);
        }
        if (++records % pause == 0) {
            now.lines = counts.lines;
            now.bytes = 0;
            for (const auto& stream : streams) {
                now.bytes += stream->reader().bytes_read();
            }
            progress(now);
        }
    }
    return order;
}

}  // namespace

std::unique_ptr<Run> rehearse(
    const Settings& settings, const std::function<void(const Progress&)>& progress)
{
    auto run = std::make_unique<Run>();
    run->conf = read_http_conf(read_conf(settings.conf));
    run->warnings = run->conf->warnings;
    if (run->conf->titles.empty()) {
        throw InputError(settings.conf + " has no \"ratelimit\" directive");
    }
    Rehearsal::Options options;
    options.busiest = settings.busiest;
    options.timeline = settings.timeline;
    options.traces = settings.share.has_value();
    run->rehearsal = std::make_unique<Rehearsal>(run->conf->zones, run->conf->titles, options);

    Streams streams;
    for (const auto& path : settings.logs) {
        streams.push_back(std::make_unique<LogStream>(path, run->report.counts));
    }
    const Order order = read_all(*run, settings, streams, progress);
    run->rehearsal->finish();

    for (const auto& stream : streams) {
        if (!stream->reader().problem().empty()) {
            run->warnings.push_back(stream->reader().path() + ": " + stream->reader().problem());
        }
    }
    warn_of_skipped(run->report.counts, order, run->warnings);
    run->report.share = settings.share.value_or(0);
    for (std::size_t i = 0; i < run->conf->titles.size(); ++i) {
        run->report.limits.push_back(report_of(*run, i, settings));
    }
    return run;
}

}  // namespace ratelimit::rehearse

#include "rehearse/run.h"

#include "rehearse/address.h"
#include "rehearse/decision_list.h"
#include "rehearse/key_hash.h"
#include "rehearse/known_formats.h"
#include "rehearse/merge.h"
#include "rehearse/site.h"
#include "rehearse/sorted_records.h"

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
    if (auto found = known_format(settings.format)) {
        return found;
    }
    throw InputError(
        "--format: invalid \"" + settings.format + "\", expected " + known_format_names()
        + ", the name of a log_format in " + settings.conf + ", or a format with variables");
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
    out.other_server = !settings.server.empty() && title.server
        && run.conf->servers[*title.server].get() != run.server;
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

/// Calls the user's function now and then.
class Pace {
public:
    Pace(
        const Streams& streams, const LineCounts& counts,
        const std::function<void(const Progress&)>& progress)
        : streams_(streams), counts_(counts), progress_(progress)
    {
        for (const auto& stream : streams) {
            now_.all_bytes += stream->reader().size();
        }
    }

    /// A record was read.
    void step()
    {
        constexpr std::uint64_t pause = 16'384;  // records between two calls
        if (++records_ % pause != 0) {
            return;
        }
        now_.lines = counts_.lines;
        now_.bytes = 0;
        for (const auto& stream : streams_) {
            now_.bytes += stream->reader().bytes_read();
        }
        progress_(now_);
    }

private:
    const Streams& streams_;
    const LineCounts& counts_;
    const std::function<void(const Progress&)>& progress_;
    Progress now_;
    std::uint64_t records_ = 0;
};

/// Decides all requests. `sorted`: lines may be out of order by any time.
Order read_all(
    Run& run, const Settings& settings, Streams& streams, bool sorted,
    const std::function<void(const Progress&)>& progress)
{
    LineCounts& counts = run.report.counts;
    const auto format = format_of(settings, *run.conf, streams);
    Variables variables(*format, run.conf->definitions);
    const Site site(*run.conf, variables, settings.server);
    run.server = site.only();
    run.warnings.insert(run.warnings.end(), site.warnings().begin(), site.warnings().end());
    std::optional<DecisionList> list;
    if (!settings.decisions.empty()) {
        list.emplace(settings.decisions, variables);
    }
    constexpr std::int64_t second = 1'000'000;
    const Order order{ settings.reorder.value_or((site.has_concurrency() ? 60 : 2) * second),
                       settings.arrival || site.has_concurrency(), sorted };
    format->want(variables.wanted(), order.arrival);
    Values values(format->escape());
    Pace pace(streams, counts, progress);
    const auto decide = [&](const Record& record) {
        values.begin(record);
        if (run.report.first_time < 0) {
            run.report.first_time = record.time;
        }
        run.report.last_time = record.time;
        const Route route = site.find(values);
        ++run.report.reached[static_cast<std::size_t>(route.reached)];
        const bool passes =
            route.plan == nullptr || run.rehearsal->decide(*route.plan, values, record.time);
        if (list) {
            list->add(values, route.reached, passes);
        }
    };
    if (sorted) {
        SortedRecords records(streams, *format, [&pace] { pace.step(); });
        while (const Record* record = records.next()) {
            decide(*record);
        }
    } else {
        Merge merge(streams, *format, order.bound, counts);
        while (const Record* record = merge.next()) {
            decide(*record);
            pace.step();
        }
    }
    if (list) {
        list->close();
    }
    return order;
}

std::unique_ptr<HttpConf> conf_of(const std::string& path, std::vector<std::string>& warnings)
{
    std::vector<MissingInclude> missing;
    auto conf = read_http_conf(read_conf(path, missing));
    if (conf->titles.empty()) {
        const std::string hint = conf->warnings.empty() ? "" : "; " + conf->warnings.front();
        throw InputError(path + " has no \"ratelimit\" directive" + hint);
    }
    if (!missing.empty()) {
        std::string text = missing.size() == 1
            ? "1 include is passed over, because it cannot be read:"
            : std::to_string(missing.size())
                + " includes are passed over, because they cannot be read:";
        for (const MissingInclude& one : missing) {
            text += (&one == &missing.front() ? " \"" : ", \"") + one.path + "\" in "
                + one.place.text();
        }
        warnings.push_back(std::move(text));
    }
    warnings.insert(warnings.end(), conf->warnings.begin(), conf->warnings.end());
    return conf;
}

/// Reads the logs once. Null: they have to be read again, and sorted.
std::unique_ptr<Run> attempt(
    const Settings& settings, bool sorted, const std::function<void(const Progress&)>& progress)
{
    auto run = std::make_unique<Run>();
    run->conf = conf_of(settings.conf, run->warnings);
    Rehearsal::Options options;
    options.busiest = settings.busiest;
    options.timeline = settings.timeline;
    options.traces = settings.share.has_value();
    run->rehearsal = std::make_unique<Rehearsal>(run->conf->zones, run->conf->titles, options);

    Streams streams;
    bool files = true;
    for (const auto& path : settings.logs) {
        streams.push_back(std::make_unique<LogStream>(path, run->report.counts));
        files = files && streams.back()->reader().is_file();
    }
    const Order order = read_all(*run, settings, streams, sorted, progress);
    const bool again = !sorted && files && !settings.reorder;
    if (again && wants_sorting(run->report.counts)) {
        return nullptr;
    }
    run->rehearsal->finish();
    for (const auto& stream : streams) {
        const LineReader& reader = stream->reader();
        if (!reader.problem().empty()) {
            (reader.is_cut_off() ? run->report.problems : run->warnings)
                .push_back(reader.path() + ": " + reader.problem());
        }
    }
    warn_of_skipped(run->report.counts, order, run->warnings);
    return run;
}

}  // namespace

std::unique_ptr<Run> rehearse(
    const Settings& settings, const std::function<void(const Progress&)>& progress)
{
    auto run = attempt(settings, false, progress);
    if (run == nullptr) {
        run = attempt(settings, true, progress);
        run->warnings.emplace_back("the log is not in the order of its times: it was sorted");
    }
    run->report.share = settings.share.value_or(0);
    for (std::size_t i = 0; i < run->conf->titles.size(); ++i) {
        run->report.limits.push_back(report_of(*run, i, settings));
    }
    add_problems(
        run->report, settings.tolerance,
        fitting_format(run->report.counts.broken_lines, *run->conf));
    return run;
}

}  // namespace ratelimit::rehearse

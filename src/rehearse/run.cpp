#include "rehearse/run.h"

#include "rehearse/count/key_hash.h"
#include "rehearse/log/merge.h"
#include "rehearse/log/sorted_records.h"
#include "rehearse/report/build_report.h"
#include "rehearse/report/known_formats.h"

#include <algorithm>
#include <filesystem>

namespace ratelimit::rehearse {

namespace {

std::unique_ptr<LogFormat> named_format(const Settings& settings, const HttpConf& conf)
{
    if (settings.format.find('$') != std::string::npos) {
        return text_format(settings.format, Escape::standard, "the log format");
    }
    for (const auto* formats : { &conf.formats, &known_formats() }) {
        for (const NamedFormat& one : *formats) {
            if (one.name == settings.format) {
                return one.make();
            }
        }
    }
    std::string known;
    for (const NamedFormat& one : known_formats()) {
        known += one.name + ", ";
    }
    throw InputError(
        "--format: invalid \"" + settings.format + "\", expected " + known
        + "the name of a log_format in " + settings.conf + ", or a format with variables");
}

/// By the options, else by the first lines of the first log that has any.
std::unique_ptr<LogFormat> format_of(
    const Settings& settings, const HttpConf& conf, LogStreams& streams)
{
    if (!settings.format.empty()) {
        return named_format(settings, conf);
    }
    const auto found = std::find_if(streams.begin(), streams.end(), [](const auto& stream) {
        return !stream->first_lines().empty();
    });
    if (settings.log_format != "text" && found != streams.end()) {
        const auto& lines = (*found)->first_lines();
        const bool given = settings.log_format == "json";
        if (auto format = json_format(lines, given ? 1 : lines.size() / 2 + 1)) {
            return format;
        }
        if (given) {
            throw InputError("none of the log's first lines is a JSON object");
        }
    }
    return text_format(combined_format, Escape::standard, "the log format \"combined\"");
}

/// Reads all records in their order. `sorted`: lines may be out of order by any time. Stops when
/// `decide` returns false.
template <class Decide>
void read_all(
    LogStreams& streams, LogFormat& format, const Order& order, LineCounts& counts,
    const Watch& watch, const Decide& decide)
{
    const auto decide_each = [&decide](auto records) {
        const Record* record = records.next();
        while (record != nullptr && decide(*record)) {
            record = records.next();
        }
    };
    if (order.sorted) {
        decide_each(SortedRecords(streams, format, [&] { return watch(counts, streams); }));
    } else {
        decide_each(Merge(streams, format, order.bound, counts));
    }
}

void set_order(Run& run, const Settings& settings, bool sorted)
{
    constexpr std::int64_t second = 1'000'000;
    const auto concurrent =
        std::count_if(run.rehearsed.begin(), run.rehearsed.end(), [](const auto& one) {
            return one->site().has_concurrency();
        });
    const bool concurrency = concurrent > 0;
    if (concurrent == 1 && run.rehearsed.size() == 2) {
        run.warnings.emplace_back(
            "only one of the configurations has concurrency=: both are decided in the order in "
            "which requests began");
    }
    run.order = { settings.reorder.value_or((concurrency ? 60 : 2) * second),
                  settings.arrival || concurrency, sorted };
    run.format->begin(settings.arrival, concurrency);
}

/// The configurations to rehearse: that of the command line, and that of --against.
std::vector<std::unique_ptr<HttpConf>> read_confs(const Settings& settings, Run& run)
{
    std::vector<std::unique_ptr<HttpConf>> confs;
    if (!settings.conf_text.empty()) {
        confs.push_back(read_http_conf(parse_conf(settings.conf_text, "discover")));
        return confs;
    }
    confs.push_back(read_site_conf(settings.conf, run.warnings));
    if (!settings.against.empty()) {
        confs.push_back(read_site_conf(settings.against, run.warnings));
    }
    return confs;
}

void add_configurations(
    Run& run, const Settings& settings, std::vector<std::unique_ptr<HttpConf>> confs, bool sorted)
{
    for (auto& conf : confs) {
        const bool is_subject = &conf == &confs.back();
        Rehearsal::Options options;
        options.busiest = settings.busiest;
        options.timeline = settings.timeline && is_subject;
        options.trace = (settings.share || settings.curves) && is_subject;
        run.rehearsed.push_back(
            std::make_unique<Rehearsed>(std::move(conf), *run.format, settings.server, options));
        const auto& warnings = run.rehearsed.back()->site().warnings();
        run.warnings.insert(run.warnings.end(), warnings.begin(), warnings.end());
    }
    if (!settings.decisions.empty()) {
        run.subject().list_decisions(settings.decisions);
    }
    set_order(run, settings, sorted);
}

/// Counts the client of a request that met a limit. `results`: by configuration.
void count_client(
    KeyTally& clients, std::string_view address, const std::vector<Rehearsed::Result>& results)
{
    const auto is = [](Rehearsed::Result wanted) {
        return [wanted](Rehearsed::Result result) { return result == wanted; };
    };
    if (std::all_of(results.begin(), results.end(), is(Rehearsed::Result::unlimited))) {
        return;
    }
    KeyCount* counts = clients.find_or_add(std::hash<std::string_view>{}(address));
    for (std::size_t i = 0; counts != nullptr && i < results.size(); ++i) {
        counts[i].requests += results[i] != Rehearsed::Result::unlimited ? 1 : 0;
        counts[i].refused += results[i] == Rehearsed::Result::refused ? 1 : 0;
    }
}

void decide_all(Run& run, LogStreams& streams, const Watch& watch)
{
    Report& report = run.report;
    run.clients = KeyTally(run.rehearsed.size());
    std::vector<Rehearsed::Result> results(run.rehearsed.size());
    const bool has_clients = run.subject().facts().address != nullptr;
    read_all(streams, *run.format, run.order, report.counts, watch, [&](const Record& record) {
        report.first_time = report.first_time < 0 ? record.time : report.first_time;
        report.last_time = record.time;
        for (std::size_t i = 0; i < run.rehearsed.size(); ++i) {
            results[i] = run.rehearsed[i]->decide(record);
        }
        if (has_clients) {
            count_client(run.clients, run.subject().address(), results);
        }
        return watch(report.counts, streams);
    });
    run.interrupted = !watch(report.counts, streams);
    if (run.interrupted) {
        report.problems.emplace_back(
            "interrupted: the numbers are those of the lines that were read");
    }
    for (const auto& one : run.rehearsed) {
        one->finish();
    }
}

/// Reads the logs once. Null: they have to be read again, and sorted.
std::unique_ptr<Run> attempt(const Settings& settings, bool sorted, const Watch& watch)
{
    auto run = std::make_unique<Run>();
    auto confs = read_confs(settings, *run);
    LogStreams streams;
    for (const auto& path : settings.logs) {
        streams.push_back(std::make_unique<LogStream>(path, run->report.counts));
    }
    run->format = format_of(settings, *confs.back(), streams);
    add_configurations(*run, settings, std::move(confs), sorted);
    decide_all(*run, streams, watch);
    const bool may_sort = !sorted && !settings.reorder && run->report.problems.empty();
    if (may_sort && wants_sorting(run->report.counts) && read_once(settings).empty()) {
        return nullptr;
    }
    for (const auto& stream : streams) {
        const LineReader& reader = stream->reader();
        if (!reader.problem().empty()) {
            (reader.is_cut_off() ? run->report.problems : run->warnings)
                .push_back(reader.path() + ": " + reader.problem());
        }
    }
    warn_of_skipped(run->report.counts, run->order, run->warnings);
    return run;
}

/// The changes by the second configuration.
AgainstReport against_report(Run& run, const Settings& settings)
{
    AgainstReport out;
    out.conf = settings.against;
    out.before = total_report(*run.rehearsed.front(), run.clients, 0, 0);
    out.newly = run.clients.count_if(
        [](const KeyCount* counts) { return counts[0].refused == 0 && counts[1].refused > 0; });
    out.no_longer = run.clients.count_if(
        [](const KeyCount* counts) { return counts[0].refused > 0 && counts[1].refused == 0; });
    // Clients that only one of the two configurations refused.
    const auto only = [&](std::size_t from, std::size_t other) {
        std::vector<RefusedKey> found;
        for (RefusedKey& one :
             run.rehearsed[from]->totals().refused_keys.list(Outcome::most_refused_keys)) {
            const KeyCount* counts =
                run.clients.find_or_add(std::hash<std::string_view>{}(one.key));
            if (found.size() < settings.busiest && counts != nullptr
                && counts[other].refused == 0) {
                one.key = printable(one.key);
                found.push_back(std::move(one));
            }
        }
        return found;
    };
    out.newly_refused = only(1, 0);
    out.no_longer_refused = only(0, 1);
    return out;
}

void build(Run& run, const Settings& settings)
{
    Report& report = run.report;
    Rehearsed& subject = run.subject();
    report.share = settings.share.value_or(0);
    report.total = total_report(subject, run.clients, run.rehearsed.size() - 1, settings.busiest);
    for (const auto& one : run.rehearsed) {
        warn_of_doubts(*one, run.warnings);
    }
    if (run.rehearsed.size() > 1) {
        report.against = against_report(run, settings);
    }
    for (const LimitConf& limit : subject.conf().limits) {
        report.limits.push_back(limit_report(subject, limit, settings.busiest));
    }
    add_quotas(subject, settings.share, settings.curves, report.limits);
    for (const LimitReqConf& limit : subject.conf().limit_reqs) {
        if (limit.followed) {
            report.limits.push_back(limit_report(subject, limit, settings.busiest));
        }
    }
    add_problems(
        report, settings.tolerance, fitting_format(report.counts.broken_lines, subject.conf()));
    for (const FailIf& one : settings.fail_if) {
        if (auto failure = failure_of(one, report)) {
            report.failures.push_back(std::move(*failure));
        }
    }
}

}  // namespace

std::string read_once(const Settings& settings)
{
    auto paths = settings.logs;
    paths.insert(paths.end(), { settings.conf, settings.against });
    const auto found = std::find_if(paths.begin(), paths.end(), [](const std::string& path) {
        std::error_code error;
        return path == "-" || std::filesystem::is_other(path, error);
    });
    return found == paths.end() ? "" : *found == "-" ? "standard input" : *found;
}

std::unique_ptr<Run> rehearse(const Settings& settings, const Watch& watch)
{
    auto run = attempt(settings, false, watch);
    if (run == nullptr) {
        run = attempt(settings, true, watch);
        run->warnings.emplace_back("the log is not in the order of its times: it was sorted");
    }
    build(*run, settings);
    return run;
}

}  // namespace ratelimit::rehearse

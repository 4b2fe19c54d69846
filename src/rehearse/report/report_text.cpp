#include "rehearse/count/key_hash.h"
#include "rehearse/log/log_time.h"
#include "rehearse/report/report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace ratelimit::rehearse {

namespace {

std::string time_of(std::int64_t time_us)
{
    return utc_text(time_us / 1'000'000);
}

void add_margin(const LimitReport& limit, std::string& out)
{
    const std::int64_t left = limit.result->least_left;
    if (limit.limit == 0 || left < 0) {
        return;
    }
    if (limit.keys.keys_refused > 0) {
        out += "  margin        none: keys were refused\n";
        return;
    }
    add(out, "  margin        no key had fewer than %" PRId64 " of %" PRId64 " left (%.0f %%)\n",
        left, limit.limit,
        percent(static_cast<std::uint64_t>(left), static_cast<std::uint64_t>(limit.limit)));
}

void add_suggestion(const LimitReport& limit, double share, std::string& out)
{
    if (!limit.suggested) {
        return;
    }
    const SuggestedQuota& suggested = *limit.suggested;
    if (suggested.quota == 0) {
        add(out,
            "  suggestion    none: with this burst every quota refuses more than %.4g %% of the "
            "keys\n",
            100 * share);
        return;
    }
    const std::string parameter = suggested.rate.empty()
        ? "concurrency=" + std::to_string(suggested.quota)
        : "rate=" + suggested.rate;
    add(out,
        suggested.alone
            ? "  suggestion    %s, the smallest that refuses at most %.4g %% of the keys: it would "
              "refuse %" PRIu64 " of %" PRIu64 "\n"
            : "  suggestion    %s for the zone, the smallest with which each of its limits refuses "
              "at most %.4g %% of the keys: this one would refuse %" PRIu64 " of %" PRIu64 "\n",
        parameter.c_str(), 100 * share, suggested.keys_refused, limit.keys.keys);
}

void add_busiest(const LimitReport& limit, std::string& out)
{
    if (limit.busiest.empty()) {
        return;
    }
    std::size_t width = 12;
    for (const BusyKey& busy : limit.busiest) {
        width = std::max(width, std::min<std::size_t>(busy.key.size(), 60));
    }
    add(out, "  %-*s  %12s  %12s\n", static_cast<int>(width), "busiest keys", "requests",
        "refused");
    for (const BusyKey& busy : limit.busiest) {
        add(out, "  %-*s  %12" PRIu64 "  %12" PRIu64 "\n", static_cast<int>(width),
            busy.key.c_str(), busy.count.requests, busy.count.refused);
    }
}

/// A key or a path of a table: the start of a long one.
std::string cell(const std::string& text, std::size_t most)
{
    const std::string shown = printable(text);
    return shown.empty() ? "-" : shown.size() <= most ? shown : shown.substr(0, most - 3) + "...";
}

/// Who was refused: the keys of a limit, or clients.
void add_refused(
    const std::vector<RefusedKey>& keys, const char* title, const std::string& margin,
    std::string& out)
{
    constexpr std::size_t most_key = 40;
    constexpr std::size_t most_path = 30;
    constexpr std::size_t most_agent = 60;
    if (keys.empty()) {
        return;
    }
    std::size_t width = std::string_view(title).size();
    std::size_t path_width = 9;
    for (const RefusedKey& one : keys) {
        width = std::max(width, cell(one.key, most_key).size());
        path_width = std::max(path_width, cell(one.main_path(), most_path).size());
    }
    add(out, "%s%-*s  %9s  %9s  %-20s  %-*s  %s\n", margin.c_str(), static_cast<int>(width), title,
        "refused", "with 2xx", "first refusal", static_cast<int>(path_width), "main path",
        "main user agent");
    for (const RefusedKey& one : keys) {
        add(out, "%s%-*s  %9" PRIu64 "  %9" PRIu64 "  %-20s  %-*s  %s\n", margin.c_str(),
            static_cast<int>(width), cell(one.key, most_key).c_str(), one.refused, one.succeeded,
            time_of(one.first).c_str(), static_cast<int>(path_width),
            cell(one.main_path(), most_path).c_str(), cell(one.agent.get(), most_agent).c_str());
    }
}

void add_total_numbers(const TotalReport& total, std::string& out)
{
    const Totals& counts = total.counts();
    add(out, "  refused       %" PRIu64 " of %" PRIu64 " requests (%.4g %%)", counts.refused,
        counts.requests, percent(counts.refused, counts.requests));
    if (counts.refused > 0 && total.has_status()) {
        add(out, ", of which %" PRIu64 " were answered with 2xx at that time", counts.succeeded);
    }
    out += '\n';
    if (total.subject->doubtful() > 0) {
        const Bounds& bounds = *total.subject->bounds();
        add(out,
            "                between %" PRIu64 " and %" PRIu64 " of %" PRIu64
            " that may meet a limit (%.4g and %.4g %%): the log does not tell enough of %" PRIu64
            " requests\n",
            bounds.least_refused(), bounds.most_refused(), bounds.requests(),
            percent(bounds.least_refused(), bounds.requests()),
            percent(bounds.most_refused(), bounds.requests()), total.subject->doubtful());
    }
    if (total.has_clients()) {
        const char* about = total.exact ? "" : "about ";
        add(out, "                %s%" PRIu64 " of %s%" PRIu64 " clients (%.4g %%)\n", about,
            total.clients.keys_refused, about, total.clients.keys,
            percent(total.clients.keys_refused, total.clients.keys));
    }
}

void add_total(const Report& report, std::string& out)
{
    out += "\nall limits together"
        + (report.against ? " of " + report.against->conf : std::string()) + "\n";
    add_total_numbers(report.total, out);
    add_refused(report.total.refused_clients, "refused clients", "  ", out);
    if (!report.against) {
        return;
    }
    const AgainstReport& against = *report.against;
    add(out, "\nagainst the first configuration, which would have\n");
    add_total_numbers(against.before, out);
    if (against.before.has_clients()) {
        add(out, "  newly refused by %s: %" PRIu64 " clients (%.4g %%); no longer: %" PRIu64 "\n",
            against.conf.c_str(), against.newly, percent(against.newly, report.total.clients.keys),
            against.no_longer);
    }
    add_refused(against.newly_refused, "newly refused", "  ", out);
    add_refused(against.no_longer_refused, "no longer refused", "  ", out);
}

void add_limit(const LimitReport& limit, double share, std::string& out)
{
    const char* about = limit.exact ? "" : "about ";
    const LimitResult& result = *limit.result;
    add(out, "\n%s at %s%s\n  %s\n", limit.zone.c_str(), limit.location.c_str(),
        !limit.shadow        ? ""
            : limit.of_nginx ? " (dry run)"
                             : " (shadow)",
        limit.policy.c_str());
    if (result.requests == 0) {
        out += limit.other_server ? "  of another server\n" : "  no request reached it\n";
        return;
    }
    add(out, "  requests      %" PRIu64 "\n", result.requests);
    add(out, "  refused       %" PRIu64 " (%.4g %%)\n", result.refused,
        percent(result.refused, result.requests));
    if (result.delayed > 0) {
        add(out, "  delayed       %" PRIu64 "\n", result.delayed);
    }
    if (result.malformed > 0) {
        add(out, "  malformed     %" PRIu64 " rates, for which the fail mode decides\n",
            result.malformed);
    }
    add(out, "  keys          %s%" PRIu64 "\n", about, limit.keys.keys);
    add(out, "  keys refused  %s%" PRIu64 " (%.4g %%)\n", about, limit.keys.keys_refused,
        percent(limit.keys.keys_refused, limit.keys.keys));
    const MinuteCount worst = result.minutes.worst();
    add(out, "  worst minute  %s, %" PRIu64 " requests, %" PRIu64 " refused\n",
        utc_text(worst.minute * 60).c_str(), worst.requests, worst.refused);
    add_margin(limit, out);
    add_suggestion(limit, share, out);
    add_busiest(limit, out);
    add_refused(limit.refused_keys, "refused keys", "  ", out);
}

/// What became of the requests.
void add_reached(const Report& report, std::string& out)
{
    const auto count = [&report](Reached reached) {
        return report.total.counts().reached[static_cast<std::size_t>(reached)];
    };
    std::uint64_t before = 0;
    std::string kinds;
    for (std::size_t i = 0; i < reached_kinds; ++i) {
        const auto kind = static_cast<Reached>(i);
        if (kind != Reached::limits && kind != Reached::none && count(kind) > 0) {
            before += count(kind);
            kinds += (kinds.empty() ? " (" : ", ") + std::string(place_name(kind)) + " "
                + std::to_string(count(kind));
        }
    }
    add(out,
        "%" PRIu64 " requests met a limit, %" PRIu64 " met none, %" PRIu64
        " were answered before%s\n",
        count(Reached::limits), count(Reached::none), before,
        (kinds.empty() ? kinds : kinds + ")").c_str());
}

}  // namespace

void add(std::string& out, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char* text = nullptr;
    if (vasprintf(&text, format, arguments) >= 0) {
        out += text;
        std::free(text);
    }
    va_end(arguments);
}

std::string text_report(const Report& report)
{
    std::string out;
    for (const std::string& problem : report.problems) {
        out += "NOT USABLE: " + problem + "\n";
    }
    for (const std::string& failure : report.failures) {
        out += "FAILED: " + failure + "\n";
    }
    add(out, "%" PRIu64 " lines, %" PRIu64 " skipped", report.counts.lines,
        report.counts.skipped());
    if (report.first_time >= 0) {
        add(out, ", from %s to %s", time_of(report.first_time).c_str(),
            time_of(report.last_time).c_str());
    }
    out += '\n';
    add_reached(report, out);
    add_total(report, out);
    for (const LimitReport& limit : report.limits) {
        add_limit(limit, report.share, out);
    }
    return out;
}

}  // namespace ratelimit::rehearse

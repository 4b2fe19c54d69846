#include "rehearse/log_time.h"
#include "rehearse/report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

namespace ratelimit::rehearse {

namespace {

/// Appends formatted text, of at most a few hundred characters besides strings.
__attribute__((format(printf, 2, 3))) void add(std::string& out, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, arguments);
    va_end(arguments);
    std::string text(static_cast<std::size_t>(std::max(0, length)) + 1, '\0');
    std::vsnprintf(text.data(), text.size(), format, again);
    va_end(again);
    text.pop_back();
    out += text;
}

double percent(std::uint64_t part, std::uint64_t whole) noexcept
{
    return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string time_of(std::int64_t time_us)
{
    return utc_text(time_us / 1'000'000).text;
}

void add_margin(const LimitReport& limit, std::string& out)
{
    if (limit.limit == 0 || limit.least_left < 0) {
        return;
    }
    if (limit.keys_refused > 0) {
        out += "  margin        none: keys were refused\n";
        return;
    }
    add(out, "  margin        no key had fewer than %" PRId64 " of %" PRId64 " left (%.0f %%)\n",
        limit.least_left, limit.limit,
        percent(
            static_cast<std::uint64_t>(limit.least_left), static_cast<std::uint64_t>(limit.limit)));
}

void add_suggestion(const LimitReport& limit, double share, std::string& out)
{
    if (!limit.suggested) {
        return;
    }
    if (!limit.suggested->quota) {
        add(out,
            "  suggestion    none: with this burst every quota refuses more than %.4g %% of the "
            "keys\n",
            100 * share);
        return;
    }
    const std::string parameter = limit.suggested->rate.empty()
        ? "concurrency=" + std::to_string(limit.suggested->quota->quota)
        : "rate=" + limit.suggested->rate;
    add(out,
        "  suggestion    %s, the smallest that refuses at most %.4g %% of the keys: %" PRIu64 "\n",
        parameter.c_str(), 100 * share, limit.suggested->quota->keys_refused);
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

void add_limit(const LimitReport& limit, double share, std::string& out)
{
    const char* about = limit.exact ? "" : "about ";
    add(out, "\n%s at %s%s\n  %s\n", limit.zone.c_str(), limit.location.c_str(),
        limit.shadow ? " (shadow)" : "", limit.policy.c_str());
    if (limit.requests == 0) {
        out += limit.other_server ? "  of another server\n" : "  no request reached it\n";
        return;
    }
    add(out, "  requests      %" PRIu64 "\n", limit.requests);
    add(out, "  refused       %" PRIu64 " (%.4g %%)\n", limit.refused,
        percent(limit.refused, limit.requests));
    if (limit.delayed > 0) {
        add(out, "  delayed       %" PRIu64 "\n", limit.delayed);
    }
    if (limit.malformed > 0) {
        add(out, "  malformed     %" PRIu64 " rates, for which the fail mode decides\n",
            limit.malformed);
    }
    add(out, "  keys          %s%" PRIu64 "\n", about, limit.keys);
    add(out, "  keys refused  %s%" PRIu64 " (%.4g %%)\n", about, limit.keys_refused,
        percent(limit.keys_refused, limit.keys));
    if (limit.worst.requests > 0) {
        add(out, "  worst minute  %s, %" PRIu64 " requests, %" PRIu64 " refused\n",
            utc_text(limit.worst.minute * 60).text, limit.worst.requests, limit.worst.refused);
    }
    add_margin(limit, out);
    add_suggestion(limit, share, out);
    add_busiest(limit, out);
}

/// What became of the requests.
void add_reached(const Report& report, std::string& out)
{
    const auto count = [&report](Reached reached) {
        return report.reached[static_cast<std::size_t>(reached)];
    };
    std::uint64_t before = 0;
    std::string kinds;
    for (std::size_t i = 0; i < reached_kinds; ++i) {
        const auto kind = static_cast<Reached>(i);
        if (kind != Reached::limits && kind != Reached::none && report.reached[i] > 0) {
            before += report.reached[i];
            kinds += (kinds.empty() ? " (" : ", ") + std::string(name_of(kind)) + " "
                + std::to_string(report.reached[i]);
        }
    }
    add(out,
        "%" PRIu64 " requests met a limit, %" PRIu64 " met none, %" PRIu64
        " were answered before%s\n",
        count(Reached::limits), count(Reached::none), before,
        (kinds.empty() ? kinds : kinds + ")").c_str());
}

}  // namespace

std::string text_report(const Report& report)
{
    std::string out;
    for (const std::string& problem : report.problems) {
        out += "NOT USABLE: " + problem + "\n";
    }
    add(out, "%" PRIu64 " lines, %" PRIu64 " skipped", report.counts.lines, report.counts.skipped);
    if (report.first_time >= 0) {
        add(out, ", from %s to %s", time_of(report.first_time).c_str(),
            time_of(report.last_time).c_str());
    }
    out += '\n';
    add_reached(report, out);
    for (const LimitReport& limit : report.limits) {
        add_limit(limit, report.share, out);
    }
    return out;
}

}  // namespace ratelimit::rehearse

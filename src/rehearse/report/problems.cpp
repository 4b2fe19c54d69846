#include "rehearse/report/problems.h"

#include "rehearse/count/key_hash.h"
#include "rehearse/log/log_time.h"

#include <cinttypes>

namespace ratelimit::rehearse {

namespace {

/// "1 line skipped: it is …", "2 lines skipped: they are …".
std::string number_text(std::uint64_t number, const char* one, const char* several)
{
    return number == 1 ? "1 line skipped: " + std::string(one)
                       : std::to_string(number) + " lines skipped: " + several;
}

/// "2s", "3600s", "0.5s".
std::string seconds_text(std::int64_t time)
{
    std::string out;
    add(out, "%.9gs", static_cast<double>(time) / second_us);
    return out;
}

std::string late_text(const LineCounts& counts, const Order& order)
{
    constexpr std::int64_t largest_bound = 86'400 * second_us;
    const std::string bound = seconds_text(order.bound);
    const std::string out = order.arrival
        ? number_text(counts.late, "its request began ", "their requests began ")
        : number_text(counts.late, "", "");
    return out + "more than " + bound + (order.arrival ? " before others; " : " behind; ")
        + (counts.latest < largest_bound ? "all would be used with --reorder "
                   + std::to_string(counts.latest / second_us + 1) + "s"
                                         : "--reorder is at most 1d");
}

}  // namespace

bool wants_sorting(const LineCounts& counts) noexcept
{
    return (counts.late + counts.crowded) * 1000 > counts.lines;
}

void warn_of_skipped(const LineCounts& counts, const Order& order, std::vector<std::string>& out)
{
    constexpr std::size_t shown = 120;
    if (counts.broken > 0) {
        out.push_back(
            number_text(
                counts.broken, "it does not have the log's format: ",
                "they do not have the log's format; the first is: ")
            + printable(counts.broken_lines.front().substr(0, shown)));
    }
    if (counts.too_long > 0) {
        out.push_back(
            number_text(counts.too_long, "it is longer than 1 MB", "they are longer than 1 MB"));
    }
    if (counts.late > 0) {
        out.push_back(late_text(counts, order));
    }
    if (counts.crowded > 0) {
        const char* text =
            "too many other lines lie between the time that they belong to and their place";
        out.push_back(number_text(counts.crowded, text, text));
    }
}

void add_problems(Report& report, const Tolerance& tolerance, const std::string& format)
{
    const LineCounts& counts = report.counts;
    if (counts.lines == 0) {
        report.problems.emplace_back("the log has no line");
        return;
    }
    const double share = static_cast<double>(counts.skipped()) / static_cast<double>(counts.lines);
    if (share > tolerance.skipped || counts.skipped() == counts.lines) {
        std::string& problem = report.problems.emplace_back();
        add(problem, "%.3g %% of the lines were skipped (%" PRIu64 " of %" PRIu64 ")", 100 * share,
            counts.skipped(), counts.lines);
        problem += format.empty() ? "" : "; those without the log's format fit " + format;
    }
    if (counts.skipped() == counts.lines || tolerance.unreached) {
        return;
    }
    for (const LimitReport& limit : report.limits) {
        if (limit.result->requests == 0 && !limit.other_server) {
            report.problems.push_back(
                "no request reached the limit \"" + limit.zone + "\" at " + limit.location);
        }
    }
}

}  // namespace ratelimit::rehearse

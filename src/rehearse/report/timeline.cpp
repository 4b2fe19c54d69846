#include "rehearse/conf/input_error.h"
#include "rehearse/log/log_time.h"
#include "rehearse/report/report.h"
#include "rehearse/route/decision_list.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace ratelimit::rehearse {

namespace {

constexpr std::int64_t left_edge = 70;  // of the charts, in pixels
constexpr std::int64_t chart_width = 800;
constexpr std::int64_t chart_height = 140;
constexpr std::int64_t row_height = chart_height + 76;  // with title and labels
constexpr std::int64_t most_columns = 400;

/// Text of an SVG: markup characters are escaped, bytes that are no printable ASCII are dots.
std::string xml_text(const std::string& text)
{
    std::string out;
    for (const char letter : text) {
        switch (letter) {
        case '<':
            out += "&lt;";
            break;
        case '>':
            out += "&gt;";
            break;
        case '&':
            out += "&amp;";
            break;
        case '"':
            out += "&quot;";
            break;
        default:
            out += letter >= ' ' && letter <= '~' ? letter : '.';
        }
    }
    return out;
}

std::string number(std::int64_t value)
{
    return std::to_string(value);
}

/// The time axis that all charts share: columns of as many minutes as are needed.
struct Axis {
    std::int64_t first = 0;  // minute
    std::int64_t step = 1;   // minutes for each column
    std::int64_t columns = 1;

    std::int64_t x(std::int64_t column) const { return left_edge + column * chart_width / columns; }
};

Axis axis_of(const Report& report)
{
    constexpr std::int64_t minute = 60'000'000;
    Axis axis;
    axis.first = std::max<std::int64_t>(0, report.first_time) / minute;
    const std::int64_t minutes =
        std::max<std::int64_t>(0, report.last_time) / minute - axis.first + 1;
    axis.step = (minutes + most_columns - 1) / most_columns;
    axis.columns = (minutes + axis.step - 1) / axis.step;
    return axis;
}

void add_bar(
    std::string& out, const Axis& axis, std::int64_t column, std::int64_t from, std::int64_t to,
    const char* colour)
{
    const std::int64_t x = axis.x(column);
    const std::int64_t wide = std::max<std::int64_t>(1, axis.x(column + 1) - x);
    if (to > from) {
        out += "<rect x=\"" + number(x) + "\" y=\"" + number(chart_height - to) + "\" width=\""
            + number(wide) + "\" height=\"" + number(to - from) + "\" fill=\"" + colour + "\"/>\n";
    }
}

/// "10:14", or with the date where the charts are longer than a day.
std::string label_of(const Axis& axis, std::int64_t minute)
{
    const std::string time = utc_text(minute * 60);
    constexpr std::int64_t day = 1440;  // minutes
    return axis.columns * axis.step > day ? time.substr(5, 5) + " " + time.substr(11, 5)
                                          : time.substr(11, 5);
}

void add_labels(std::string& out, const Axis& axis, std::uint64_t most)
{
    out += "<text x=\"" + number(left_edge - 6) + "\" y=\"10\" text-anchor=\"end\">"
        + std::to_string(most) + "</text>\n<text x=\"" + number(left_edge - 6) + "\" y=\""
        + number(chart_height) + "\" text-anchor=\"end\">0</text>\n";
    out += "<path d=\"M" + number(left_edge) + " 0V" + number(chart_height) + "H"
        + number(left_edge + chart_width) + "\" fill=\"none\" stroke=\"#666\"/>\n";
    constexpr std::int64_t labels = 5;
    for (std::int64_t i = 0; i < labels; ++i) {
        const std::int64_t column = i * (axis.columns - 1) / (labels - 1);
        if (i == 0 || column > (i - 1) * (axis.columns - 1) / (labels - 1)) {
            out += "<text x=\"" + number(axis.x(column)) + "\" y=\"" + number(chart_height + 16)
                + "\" text-anchor=\"middle\">" + label_of(axis, axis.first + column * axis.step)
                + "</text>\n";
        }
    }
}

void add_chart(std::string& out, const Axis& axis, const LimitReport& limit, std::int64_t top)
{
    std::vector<KeyCount> columns(static_cast<std::size_t>(axis.columns));
    for (const MinuteCount& minute : limit.result->minutes.all()) {
        const std::int64_t at = (minute.minute - axis.first) / axis.step;
        if (at >= 0 && at < axis.columns) {
            columns[static_cast<std::size_t>(at)].requests += minute.requests;
            columns[static_cast<std::size_t>(at)].refused += minute.refused;
        }
    }
    std::uint64_t most = 1;
    for (const KeyCount& column : columns) {
        most = std::max(most, column.requests);
    }
    const auto height = [most](std::uint64_t count) {
        const double share = static_cast<double>(count) / static_cast<double>(most);
        const auto pixels = std::int64_t{ std::lround(share * chart_height) };
        return count > 0 ? std::max<std::int64_t>(1, pixels) : 0;
    };
    out += "<g transform=\"translate(0 " + number(top) + ")\">\n<text x=\"" + number(left_edge)
        + "\" y=\"-12\" font-weight=\"bold\">" + xml_text(limit.zone + " at " + limit.location)
        + "</text>\n";
    for (std::int64_t i = 0; i < axis.columns; ++i) {
        const KeyCount& column = columns[static_cast<std::size_t>(i)];
        const std::int64_t refused = height(column.refused);
        add_bar(out, axis, i, refused, height(column.requests), "#7aa6d6");
        add_bar(out, axis, i, 0, refused, "#c62828");
    }
    add_labels(out, axis, most);
    out += "</g>\n";
}

}  // namespace

std::string timeline_csv(const Report& report)
{
    std::string out = "time,zone,location,requests,refused\n";
    for (const LimitReport& limit : report.limits) {
        const std::string names =
            "," + csv_field(limit.zone) + "," + csv_field(limit.location) + ",";
        for (const MinuteCount& minute : limit.result->minutes.all()) {
            out += utc_text(minute.minute * 60) + names + std::to_string(minute.requests) + ","
                + std::to_string(minute.refused) + "\n";
        }
    }
    return out;
}

std::string timeline_svg(const Report& report)
{
    const Axis axis = axis_of(report);
    const auto limits = static_cast<std::int64_t>(report.limits.size());
    const std::int64_t wide = left_edge + chart_width + 40;
    const std::int64_t high = 40 + limits * row_height;
    std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(wide)
        + " " + number(high) + "\" width=\"" + number(wide) + "\" height=\"" + number(high)
        + "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
          "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    out += "<rect x=\"" + number(left_edge)
        + "\" y=\"10\" width=\"12\" height=\"12\" fill=\"#7aa6d6\"/>\n<text x=\""
        + number(left_edge + 18) + "\" y=\"20\">passed</text>\n<rect x=\"" + number(left_edge + 80)
        + "\" y=\"10\" width=\"12\" height=\"12\" fill=\"#c62828\"/>\n<text x=\""
        + number(left_edge + 98) + "\" y=\"20\">refused</text>\n<text x=\"" + number(wide - 40)
        + "\" y=\"20\" text-anchor=\"end\">requests per "
        + (axis.step == 1 ? std::string("minute") : number(axis.step) + " minutes")
        + ", UTC</text>\n";
    for (std::int64_t i = 0; i < limits; ++i) {
        add_chart(out, axis, report.limits[static_cast<std::size_t>(i)], 64 + i * row_height);
    }
    return out + "</svg>\n";
}

void write_file(const std::string& path, const std::string& text)
{
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) {
        fail_by_errno("cannot write " + path);
    }
}

}  // namespace ratelimit::rehearse

#include "http/api/views.h"
#include "http/decision_count.h"
#include "limit/json_text.h"
#include "nginx/clock.h"

#include <algorithm>
#include <array>

namespace ratelimit::http {

namespace {

constexpr std::array<std::string_view, History::most_series> series_names = { "passed", "refused",
                                                                              "would_refuse",
                                                                              "undecided" };

void write_steps(JsonText& json, History::Steps steps, std::int64_t step_s, std::int64_t since)
{
    // Steps that ended before `since` are left out.
    const std::int64_t early = std::max<std::int64_t>(since - steps.start, 0) / step_s;
    const auto left_out = std::min<std::int64_t>(early, std::ssize(steps.values));
    steps.values.erase(steps.values.begin(), steps.values.begin() + left_out);
    if (!steps.highest_use.empty()) {
        steps.highest_use.erase(steps.highest_use.begin(), steps.highest_use.begin() + left_out);
    }

    json.begin_object().number("step", step_s).number("start", steps.start + left_out * step_s);
    for (std::size_t series = 0; series < steps.series; ++series) {
        json.begin_array(series_names[series]);
        for (const History::Values& values : steps.values) {
            if (values[series] == History::unknown) {
                json.null({});
            } else {
                json.number({}, values[series]);
            }
        }
        json.end_array();
    }
    if (!steps.highest_use.empty()) {
        json.begin_array("highest_use");
        for (const std::uint8_t use : steps.highest_use) {
            if (use == History::unknown_use) {
                json.null({});
            } else {
                json.number({}, std::uint64_t{ use });
            }
        }
        json.end_array();
    }
    json.end_object();
}

}  // namespace

std::string history_json(std::string_view zone, const ZoneMemory& memory, std::int64_t since)
{
    roll_history(memory);
    const History history = memory.history();
    JsonText json;
    json.begin_object()
        .text("zone", or_null(zone))
        .seconds("now", nginx::local_time())
        .begin_array("steps");
    for (std::size_t scale = 0; scale < History::scales.size(); ++scale) {
        History::Steps steps = history.read(scale);
        if (zone.empty()) {
            steps.highest_use.clear();  // requests have no limit of their own
        }
        write_steps(json, std::move(steps), History::scales[scale].step_s, since);
    }
    json.end_array();
    return json.finish();
}

}  // namespace ratelimit::http

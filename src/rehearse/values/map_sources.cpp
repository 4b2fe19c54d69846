#include "rehearse/values/map_sources.h"

#include "limit/grammar.h"
#include "limit/rate_text.h"
#include "limit/variable_text.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

constexpr int most_maps = 16;  // one behind another

/// Whether the line of a map is a value.
bool is_value(const Directive& line)
{
    return line.args.size() == 1;
}

bool is_late(std::string_view text, const Definitions& definitions, int depth)
{
    const auto names = variables_in(text);
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
        const Directive* map = definitions.block(name);
        if (map == nullptr || map->name != "map") {
            return known_late(name);
        }
        if (depth == 0) {
            return false;
        }
        const auto& lines = map->block;
        return is_late(map->args.front(), definitions, depth - 1)
            || std::any_of(lines.begin(), lines.end(), [&](const Directive& line) {
                   return is_value(line) && is_late(line.args.front(), definitions, depth - 1);
               });
    });
}

bool is_malformed(std::string_view rate)
{
    return !rate.empty() && !has_variable(rate) && !rate.starts_with("0r/") && !parse_rate(rate)
        && !parse_calendar_rate(rate);
}

}  // namespace

bool is_late_by_map(std::string_view text, const Definitions& definitions)
{
    return is_late(text, definitions, most_maps);
}

std::vector<const Directive*> malformed_rates(std::string_view rate, const Definitions& definitions)
{
    std::vector<const Directive*> out;
    const auto names = variables_in(rate);
    if (names.size() != 1
        || (rate != "$" + std::string(names[0]) && rate != "${" + std::string(names[0]) + "}")) {
        return out;
    }
    const Directive* map = definitions.block(names[0]);
    if (map == nullptr || map->name != "map") {
        return out;
    }
    for (const Directive& line : map->block) {
        if (is_value(line) && is_malformed(line.args.front())) {
            out.push_back(&line);
        }
    }
    return out;
}

}  // namespace ratelimit::rehearse

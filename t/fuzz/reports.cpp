// What other nodes of a fleet say of themselves: anyone who can write to Redis can write there.

#include "fuzz.h"

#include "fleet/fleet_sums.h"

#include <algorithm>
#include <vector>

using namespace ratelimit::fleet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    auto input = text_of(data, size);
    std::vector<FleetNode> nodes;
    while (!input.empty() && nodes.size() < 4) {
        const auto report = parse_report(take_text(input));
        if (!report) {
            continue;
        }
        must(report->name.size() <= most_name && report->zones.size() <= most_zones);
        must(report->servers.size() <= most_servers && report->busiest.size() <= most_busiest);

        // What is read is written, and read again, unchanged.
        const auto again = parse_report(write_report(*report));
        must(again && again->zones.size() == report->zones.size());
        for (std::size_t i = 0; i < report->zones.size(); ++i) {
            must(again->zones[i].passed == report->zones[i].passed);
        }
        nodes.push_back({ "id", 0, true, *report });
    }
    ZoneSums sums(nodes);
    while (sums.read(0)) {
    }
    std::size_t names = 0;
    while (const auto zone = sums.next()) {
        std::uint64_t passed = 0;
        for (const FleetNode& node : nodes) {
            const auto& zones = node.report.zones;
            const auto found = std::find_if(zones.begin(), zones.end(), [&](const auto& one) {
                return one.name == zone->name;
            });
            passed += found == zones.end() ? 0 : found->passed;
        }
        must(zone->passed == passed);
        must(zone->differ.count <= zone->nodes && zone->differ.names.size() <= most_named);
        names += zone->differ.names.size();
        for (const auto& [setting, differ] : zone->differences) {
            must(differ.count <= zone->nodes && differ.names.size() <= most_named);
            names += differ.names.size();
        }
    }
    must(names <= ZoneSums::most_names);
    for (const std::uint64_t now : { std::uint64_t{ 0 }, std::uint64_t{ 1'800'000'000 } }) {
        const auto histories = sum_history(nodes, now);
        for (std::size_t i = 0; i < histories.size(); ++i) {
            must(histories[i].passed.size() == histories[i].refused.size());
            must(histories[i].passed.size() <= history_scales[i].steps);
        }
    }
    const auto busiest = sum_busiest(nodes);
    must(busiest.size() <= most_busiest);
    must(std::is_sorted(busiest.begin(), busiest.end(), [](const auto& left, const auto& right) {
        return is_busier(left, right);
    }));
    return 0;
}

#include "fleet/happenings.h"

#include "fleet/fleet_keys.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace ratelimit::fleet {

namespace {

using What = Happening::What;

constexpr std::uint64_t us_in_ms = 1000;
constexpr std::size_t most_of_one = 5;  // names of nodes

/// How long after one node another one may follow, to be one happening with it.
constexpr std::uint64_t gap_of(What what) noexcept
{
    return what == What::redis_away ? 60'000 : 600'000;
}

std::uint64_t end_of(const Happening& one) noexcept
{
    return one.until == 0 ? UINT64_MAX : one.until;
}

/// Whether what happened to another node is part of the same.
bool is_continued(const Happening& first, const Happening& next) noexcept
{
    return !first.is_change() && first.what == next.what && first.text == next.text
        && (first.until == 0 || next.at <= first.until + gap_of(first.what));
}

/// `is_new`: it is of a node to which it has not happened yet.
void continue_with(Happening& first, Happening& next, bool is_new)
{
    first.until = end_of(first) > end_of(next) ? first.until : next.until;
    first.times = std::max(first.times, next.times);
    first.nodes.count += is_new ? 1 : 0;
    auto& names = first.nodes.names;
    std::string& name = next.nodes.names.front();
    if (names.size() < most_of_one && std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(std::move(name));
    }
}

std::optional<What> what_of(char letter, const ChangeId& id) noexcept
{
    if (id.kind == ChangeId::Kind::freed_key) {
        return letter == 'f' ? std::optional(What::freed) : std::nullopt;
    }
    return letter == 's' ? std::optional(What::set)
        : letter == 'r'  ? std::optional(What::taken_back)
                         : std::nullopt;
}

}  // namespace

Happening& Happenings::add(What what, std::uint64_t at, std::string_view name, std::string id)
{
    Item& added = all_.emplace_back();
    added.id = std::move(id);
    added.one.what = what;
    added.one.at = added.one.until = at;
    added.one.nodes = { 1, { std::string(name) } };
    return added.one;
}

void Happenings::add(const FleetNode& node)
{
    const NodeReport& report = node.report;
    const std::uint64_t heard = node.heard_us / us_in_ms;
    const std::uint64_t uptime = report.uptime_us / us_in_ms;
    if (uptime < heard) {
        add(What::started, heard - uptime, report.name, node.id);
    }
    if (!node.live && heard != 0) {
        add(report.ended != 0 ? What::ended : What::away, heard, report.name, node.id);
    }
    for (const NodeReport::Load& load : report.loads) {
        add(What::loaded, load.at_ms, report.name, node.id).text = load.text;
    }
    for (const NodeReport::Outage& outage : report.outages) {
        Happening& added = add(What::redis_away, outage.from_ms, report.name, node.id);
        added.until = outage.to_ms;
        added.times = outage.times;
    }
}

/// What it is, the length of the id, a colon, the id, and the text: lua/fleet_change.lua.
void Happenings::add_change(std::string_view member, std::uint64_t version)
{
    std::size_t length = 0;
    const char* end = member.data() + member.size();
    const auto [colon, error] =
        std::from_chars(member.data() + (member.empty() ? 0 : 1), end, length);
    if (error != std::errc{} || colon == end || *colon != ':'
        || length > static_cast<std::size_t>(end - colon) - 1) {
        return;
    }
    const std::string_view id_text(colon + 1, length);
    const auto id = parse_change_id(id_text);
    const auto what = id ? what_of(member.front(), *id) : std::nullopt;
    if (!what) {
        return;
    }
    Happening& added = all_.emplace_back().one;
    added.what = *what;
    added.text = std::string_view(colon + 1 + length, end);
    added.at = added.until = version / us_in_ms;
    added.zone = id->zone;
    added.key = id->key;
}

/// "e" if it ended, else "a"; its name, a zero byte and its id: lua/fleet_sync.lua.
void Happenings::add_gone(std::string_view member, std::uint64_t heard_us)
{
    const std::size_t end = member.find('\0');
    if (end != std::string_view::npos && (member.front() == 'e' || member.front() == 'a')) {
        add(member.front() == 'e' ? What::ended : What::away, heard_us / us_in_ms,
            member.substr(1, std::min(end - 1, most_name)), std::string(member.substr(end + 1)));
    }
}

std::vector<Happening> Happenings::latest(std::uint64_t now_ms) &&
{
    std::erase_if(all_, [now_ms](const Item& item) {
        const Happening& one = item.one;
        return (one.until != 0 && one.until + kept_ms < now_ms) || one.at > now_ms + kept_ms;
    });
    std::sort(all_.begin(), all_.end(), [](const Item& left, const Item& right) {
        return std::tie(left.one.what, left.one.text, left.one.at)
            < std::tie(right.one.what, right.one.text, right.one.at);
    });
    std::vector<Happening> found;
    std::unordered_set<std::string> ids;  // of the nodes of the last one
    for (auto& [one, id] : all_) {
        const bool continues = !found.empty() && is_continued(found.back(), one);
        // A node that loads twice does so two times.
        if (continues && !(one.what == What::loaded && ids.contains(id))) {
            continue_with(found.back(), one, ids.insert(std::move(id)).second);
        } else {
            ids = { std::move(id) };
            found.push_back(std::move(one));
        }
    }
    std::sort(found.begin(), found.end(), [](const Happening& left, const Happening& right) {
        return left.at > right.at;
    });
    found.resize(std::min(found.size(), most));
    return found;
}

}  // namespace ratelimit::fleet

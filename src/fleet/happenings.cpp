#include "fleet/happenings.h"

#include "fleet/fleet_keys.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>

namespace ratelimit::fleet {

namespace {

using What = Happening::What;

constexpr std::uint64_t us_in_ms = 1000;
constexpr std::size_t most_of_one = 5;  // names of nodes

/// Two nodes are in one entry if it happened to the second at most this long after the first, us.
constexpr std::uint64_t gap_of(What what) noexcept
{
    return what == What::redis_away ? 60'000'000 : 600'000'000;
}

std::uint64_t end_of(const Happening& one) noexcept
{
    return one.until == 0 ? UINT64_MAX : one.until;
}

Happening happening_of(What what, std::uint64_t at, std::string_view node)
{
    Happening one;
    one.what = what;
    one.at = one.until = at;
    one.nodes = { 1, { std::string(node) } };
    return one;
}

/// Whether the event of another node is part of the same one.
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

bool Happenings::Order::operator()(const Happening& left, const Happening& right) const noexcept
{
    return std::tie(left.what, left.text, left.at) < std::tie(right.what, right.text, right.at);
}

void Happenings::add(const FleetNode& node)
{
    const NodeReport& report = node.report;
    const std::uint64_t heard = node.heard_us;
    if (report.uptime_us < heard) {
        added_.insert(happening_of(What::started, heard - report.uptime_us, report.name));
    }
    if (!node.live && heard != 0) {
        const What end = report.ended != 0 ? What::ended : What::away;
        added_.insert(happening_of(end, heard, report.name));
    }
    for (const NodeReport::Load& load : report.loads) {
        Happening one = happening_of(What::loaded, load.at_ms * us_in_ms, report.name);
        one.text = load.text;
        added_.insert(std::move(one));
    }
    for (const NodeReport::Outage& outage : report.outages) {
        Happening one = happening_of(What::redis_away, outage.from_ms * us_in_ms, report.name);
        // A node that is gone cannot report the end of its last outage.
        const bool lasts = outage.to_ms == 0 && node.live;
        one.until = lasts || outage.to_ms != 0 ? outage.to_ms * us_in_ms : std::max(heard, one.at);
        one.times = outage.times;
        added_.insert(std::move(one));
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
    Happening one;
    one.what = *what;
    one.text = std::string_view(colon + 1 + length, end);
    one.at = one.until = version;
    one.zone = id->zone;
    one.key = id->key;
    added_.insert(std::move(one));
}

/// "e" if it ended, else "a"; its name, a zero byte and its id: lua/fleet_sync.lua.
void Happenings::add_gone(std::string_view member, std::uint64_t heard_us)
{
    const std::size_t end = member.find('\0');
    if (end != std::string_view::npos && (member.front() == 'e' || member.front() == 'a')) {
        const What what = member.front() == 'e' ? What::ended : What::away;
        const std::string_view name = member.substr(1, std::min(end - 1, most_name));
        added_.insert(happening_of(what, heard_us, name));
    }
}

bool Happenings::merge(std::size_t items, std::uint64_t now_us)
{
    for (std::size_t done = 0; done < items && !added_.empty(); ++done) {
        auto taken = added_.extract(added_.begin());
        Happening& one = taken.value();
        if ((one.until != 0 && one.until + kept_us < now_us) || one.at > now_us + kept_us) {
            continue;
        }
        const bool continues = !merged_.empty() && is_continued(merged_.back(), one);
        std::string name = one.is_change() ? "" : one.nodes.names.front();
        // Two reloads of one node are two events.
        if (continues && !(one.what == What::loaded && names_.contains(name))) {
            continue_with(merged_.back(), one, names_.insert(std::move(name)).second);
        } else {
            names_ = { std::move(name) };
            merged_.push_back(std::move(one));
        }
    }
    return !added_.empty();
}

std::vector<Happening> Happenings::latest() &&
{
    const std::size_t shown = std::min(merged_.size(), most);
    const auto end = merged_.begin() + static_cast<std::ptrdiff_t>(shown);
    std::partial_sort(
        merged_.begin(), end, merged_.end(),
        [](const Happening& left, const Happening& right) { return end_of(left) > end_of(right); });
    merged_.resize(shown);
    return std::move(merged_);
}

}  // namespace ratelimit::fleet

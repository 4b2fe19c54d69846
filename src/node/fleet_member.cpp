#include "node/fleet_member.h"

#include "fleet/changed_settings.h"
#include "fleet/initial_load.h"
#include "fleet/leave.h"
#include "nginx/guarded.h"
#include "nginx/text.h"
#include "node/clocks.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace ratelimit {

namespace {

using nginx::borrowed;

constexpr std::chrono::seconds fresh{ 5 };

}  // namespace

void FleetMember::set_up(RedisBlock& block, bool has_api)
{
    redis_ = &block;
    storage_ = std::hash<std::string>{}(block.storage() + block.prefix);
    keys_.emplace(block.prefix);
    sync_script_ = fleet::add_sync_script(block.scripts);
    if (has_api) {
        scripts_ = fleet::ApiScripts::add_to(block.scripts);
    }
}

void FleetMember::find_slots(ngx_log_t& log) noexcept
{
    const FleetMemory fleet = shared();
    for (Zone* zone : zones) {
        zone->override_slot = fleet.table().slot(OverrideTable::zone_hash(zone->name));
        if (zone->override_slot == nullptr) {
            ngx_log_error(
                NGX_LOG_WARN, &log, 0,
                "ratelimit: fleet: overrides of zone \"%s\" do not apply until nginx is restarted, "
                "expected at most %uz zones",
                zone->name.c_str(), OverrideTable::most_zones);
        }
    }
    // The overrides of a zone that is new are counted now, or by the first worker that has the
    // lock.
    const FleetMemory::Lock counted(fleet);
}

void FleetMember::load(
    const std::function<std::vector<ZoneSettings>()>& settings, ngx_log_t& log) noexcept
{
    const FleetMemory fleet = shared();
    const bool had_others = fleet.shared().loaded.load();  // perhaps of another Redis
    fleet.follow(storage_);
    configured_at_ = node_clock.monotonic();
    replaces_ = ngx_inherited != 0 ? static_cast<std::uint64_t>(ngx_parent) : 0;
    nginx::guarded(&log, [&] {
        const std::vector<ZoneSettings> zones = settings();
        note_load(std::span(zones).first(std::min(zones.size(), NodePast::most_zones)));
        if (!fleet.loaded()) {
            load_overrides(had_others, log);
        }
    });
}

/// `had_others`: there are overrides in force, perhaps of another Redis.
void FleetMember::load_overrides(bool had_others, ngx_log_t& log)
{
    const FleetMemory fleet = shared();
    const std::string reason =
        fleet::load_overrides(fleet, redis_->options, *keys_, node_clock, storage_);
    if (reason.empty()) {
        fleet.shared().connected.store(true);
        return;
    }
    char line[256];
    const ngx_str_t text = borrowed(nginx::escaped_for_log(reason, line, sizeof(line)));
    // A notice: at a start it is not shown at the terminal. If Redis is away, a worker logs an
    // error.
    ngx_log_error(
        NGX_LOG_NOTICE, &log, 0,
        "ratelimit: fleet: %s, the overrides follow when redis \"%s\" answers (%V)",
        had_others ? "the earlier overrides stay in force" : "the limits are those of nginx.conf",
        redis_->name.c_str(), &text);
}

/// Notes what a reload changed in these zones, at most NodePast::most_zones. The first
/// configuration of a node changes nothing.
void FleetMember::note_load(std::span<const ZoneSettings> settings)
{
    std::vector<NodePast::ZoneSettings> zones;
    for (const auto& [zone, digits] : settings) {
        NodePast::ZoneSettings& added = zones.emplace_back();
        added.zone = OverrideTable::zone_hash(zone);
        digits.copy(added.digits.data(), added.digits.size());
    }
    const FleetMemory fleet = shared();
    const FleetMemory::Lock lock(fleet);
    NodePast& past = fleet.shared().past;
    if (!lock) {
        return;
    }
    if (!past.settings().empty()) {
        past.add_load(configured_at_.count(), fleet::changed_settings(past.settings(), settings));
    }
    past.set_settings(zones);
}

void FleetMember::start(std::function<fleet::NodeReport()> figures)
{
    figures_ = std::move(figures);
    fleet::Session::Node& node = *this;
    const fleet::Sync::Parts parts{ shared(), redis_->client(), sync_script_, *keys_, node_clock,
                                    *this,    storage_ };
    session_ = std::make_unique<fleet::Session>(parts, node);
}

void FleetMember::leave(ngx_log_t& log) noexcept
{
    if (!is_up()) {
        return;
    }
    nginx::guarded(&log, [this, &log] {
        if (!fleet::leave_fleet(shared().id(), redis_->options, *keys_)) {
            ngx_log_error(
                NGX_LOG_NOTICE, &log, 0,
                "ratelimit: fleet: redis \"%s\" did not answer when nginx ended: other nodes show "
                "this one as away for an hour",
                redis_->name.c_str());
        }
    });
}

void FleetMember::hurry() noexcept
{
    if (session_ != nullptr) {
        session_->hurry();
    }
}

bool FleetMember::is_up() const noexcept
{
    const microseconds reported{ shared().shared().reported_us.load() };
    return reported.count() != 0 && node_clock.monotonic() - reported < fresh;
}

fleet::NodeReport FleetMember::report() const
{
    fleet::NodeReport report = figures_ ? figures_() : fleet::NodeReport{};
    report.name = name;
    report.process =
        static_cast<std::uint64_t>(ngx_process == NGX_PROCESS_WORKER ? ngx_parent : ngx_pid);
    report.replaces = replaces_;
    const auto age = [](microseconds since, std::int64_t least) {
        return static_cast<std::uint64_t>(
            std::max((node_clock.monotonic() - since).count(), least));
    };
    report.uptime_us = age(microseconds{ shared().shared().started_us }, 0);
    report.configured_us = age(configured_at_, 1);
    add_past(report);
    return report;
}

/// While another process that is stopped has the memory's lock, the report says nothing of it.
void FleetMember::add_past(fleet::NodeReport& report) const
{
    const FleetMemory fleet = shared();
    const FleetMemory::Lock lock(fleet);
    FleetMemory::Shared& shared = fleet.shared();
    if (!lock) {
        return;
    }
    const std::int64_t now = node_clock.monotonic().count();
    if (fleet.follows(storage_)) {  // else a later configuration has another Redis
        const std::int64_t heard = shared.heard_us.load();
        const std::int64_t since = heard == 0 ? configured_at_.count() : heard;
        const bool is_away =
            !shared.connected.load() && now - since > microseconds(fleet::Session::silence).count();
        shared.past.follow(is_away, since);
    }
    // Without an answer yet, Redis's clock is not known.
    const std::int64_t now_ms = shared.offset_us.load() != 0
        ? fleet.redis_now().count()
        : static_cast<std::int64_t>(ngx_time()) * 1000;
    const auto time = [&](std::int64_t at_us) {
        return static_cast<std::uint64_t>(std::max<std::int64_t>(now_ms - (now - at_us) / 1000, 1));
    };
    shared.past.outages().each([&](const NodePast::Outage& outage) {
        report.outages.push_back(
            { time(outage.from_us), outage.to_us == 0 ? 0 : time(outage.to_us), outage.times });
    });
    shared.past.loads().each([&](const NodePast::Load& load) {
        report.loads.push_back({ time(load.at_us), std::string(load.text()) });
    });
}

std::string FleetMember::state()
{
    return fleet::write_report(report());
}

bool FleetMember::stays() const noexcept
{
    return !ngx_exiting && !ngx_terminate && !ngx_quit;
}

void FleetMember::disconnected() noexcept
{
    ngx_log_error(
        NGX_LOG_WARN, ngx_cycle->log, 0,
        "ratelimit: fleet: redis \"%s\" does not answer, overrides stay as last known",
        redis_->name.c_str());
}

void FleetMember::connected() noexcept
{
    ngx_log_error(
        NGX_LOG_NOTICE, ngx_cycle->log, 0, "ratelimit: fleet: redis \"%s\" answers",
        redis_->name.c_str());
}

void FleetMember::left_out(std::uint64_t count) noexcept
{
    ngx_log_error(
        NGX_LOG_ERR, ngx_cycle->log, 0,
        "ratelimit: fleet: %uL overrides have no room, expected a larger size= of "
        "\"ratelimit_fleet\"",
        count);
}

void FleetMember::lost(std::uint64_t count) noexcept
{
    ngx_log_error(
        NGX_LOG_WARN, ngx_cycle->log, 0,
        "ratelimit: fleet: redis \"%s\" has lost its data: %uL overrides are gone",
        redis_->name.c_str(), count);
}

const Zone* FleetMember::zone_named(std::string_view wanted) const noexcept
{
    const auto found = std::find_if(
        zones.begin(), zones.end(), [wanted](const Zone* zone) { return zone->name == wanted; });
    return found == zones.end() ? nullptr : *found;
}

void FleetMember::freed(std::string_view zone, std::string_view key) noexcept
{
    if (const Zone* known = zone_named(zone)) {
        known->memory().forget_key(key);
    }
}

/// A refusal that is remembered may rest on what requests under the other limit left.
void FleetMember::changed(std::string_view zone, std::string_view key) noexcept
{
    if (const Zone* known = zone_named(zone)) {
        known->memory().denials().forget_key(key);
    }
}

}  // namespace ratelimit

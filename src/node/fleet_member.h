#pragma once

#include "fleet/change_call.h"
#include "fleet/node_report.h"
#include "fleet/session.h"
#include "node/redis_block.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit {

/// This node as a member of its fleet: ratelimit_fleet and, in a worker, its session.
class FleetMember final : private fleet::Session::Node, private fleet::ChangeListener {
public:
    std::optional<std::string> redis_name;
    std::string name;                  // of this node
    ngx_shm_zone_t* memory = nullptr;  // FleetMemory
    std::vector<Zone*> zones;

    /// Registers the scripts: for the API too if there is one.
    void set_up(RedisBlock& block, bool has_api);

    /// Sets each zone's Zone::override_slot. Call in the master, before there are workers. A zone
    /// without a slot has no overrides, which is logged.
    void find_slots(ngx_log_t& log) noexcept;

    /// A zone's name, and fleet::NodeReport::Zone::each_setting.
    using ZoneSettings = std::pair<std::string, std::string>;

    /// Notes what a reload changed. Loads the overrides if this node's memory does not have them
    /// yet. Call in the master. If Redis does not answer, or without memory, logs one line, and
    /// workers load them.
    void load(const std::function<std::vector<ZoneSettings>()>& settings, ngx_log_t& log) noexcept;

    /// Starts and ends this worker's session. `figures`: what this node says of itself, all but its
    /// name and its age.
    void start(std::function<fleet::NodeReport()> figures);
    void stop() noexcept { session_.reset(); }
    /// Says that this node has ended. Call in the master, when it has no workers any more. Unless
    /// Redis took a report of this node in the last five seconds, it does not try.
    void leave(ngx_log_t& log) noexcept;

    /// Takes what has changed in Redis now.
    void hurry() noexcept;

    FleetMemory shared() const noexcept { return FleetMemory(*memory); }
    /// Whether Redis took this node's report in the last five seconds.
    bool is_up() const noexcept;

    RedisBlock& redis() const noexcept { return *redis_; }
    const fleet::FleetKeys& keys() const noexcept { return *keys_; }
    const fleet::ApiScripts& scripts() const noexcept { return scripts_; }

    /// What this node says of itself.
    fleet::NodeReport report() const;

private:
    std::string state() override;
    bool stays() const noexcept override;
    void load_overrides(bool had_others, ngx_log_t& log);
    void note_load(std::span<const ZoneSettings> settings);
    void add_past(fleet::NodeReport& report) const;
    void disconnected() noexcept override;
    void connected() noexcept override;
    void left_out(std::uint64_t count) noexcept override;
    void lost(std::uint64_t count) noexcept override;
    void freed(std::string_view zone, std::string_view key) noexcept override;
    void changed(std::string_view zone, std::string_view key) noexcept override;
    const Zone* zone_named(std::string_view wanted) const noexcept;

    RedisBlock* redis_ = nullptr;
    std::uint64_t storage_ = 0;  // FleetMemory::follow
    std::optional<fleet::FleetKeys> keys_;
    redis::ScriptId sync_script_{};
    std::uint64_t replaces_ = 0;                    // fleet::NodeReport::replaces
    std::chrono::microseconds configured_at_{ 0 };  // monotonic
    fleet::ApiScripts scripts_;
    std::function<fleet::NodeReport()> figures_;
    std::unique_ptr<fleet::Session> session_;
};

}  // namespace ratelimit

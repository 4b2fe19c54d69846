#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ratelimit {

/// What a node remembers of itself over its reloads: when Redis was away, and its reloads with the
/// settings that they changed. Part of FleetMemory::Shared, and used under its lock. The master
/// process trusts nothing of it: whatever it contains, a call stays within it. Times are monotonic,
/// in microseconds.
class NodePast {
public:
    static constexpr std::size_t most = 8;  // of each that are kept, the latest

    struct Outage {
        std::int64_t from_us = 0;
        std::int64_t to_us = 0;   // 0: it lasts
        std::uint64_t times = 0;  // one that follows another within a minute continues it
    };

    struct Load {
        std::int64_t at_us = 0;
        std::array<char, 200> bytes{};
        std::size_t length = 0;

        /// What it changed, for people.
        std::string_view text() const noexcept
        {
            return { bytes.data(), std::min(length, bytes.size()) };
        }
    };

    /// A zone's settings in digits, to be compared.
    struct ZoneSettings {
        std::uint64_t zone = 0;  // OverrideTable::zone_hash
        std::array<char, 48> digits{};
    };
    static constexpr std::size_t most_zones = 256;

    /// The latest elements, of which each may have any value.
    template <class T>
    class Latest {
    public:
        void add(const T& element) noexcept { of_[added_++ % most] = element; }
        T* last() noexcept { return added_ == 0 ? nullptr : &of_[(added_ - 1) % most]; }
        /// Calls `visit` with each, the oldest first.
        template <class Visit>
        void each(Visit&& visit) const
        {
            for (std::uint64_t i = added_ - std::min<std::uint64_t>(added_, most); i != added_;
                 ++i) {
                visit(of_[i % most]);
            }
        }

    private:
        std::array<T, most> of_{};
        std::uint64_t added_ = 0;
    };

    /// Call now and then. `since`: when Redis was heard last.
    void follow(bool is_away, std::int64_t since) noexcept;

    /// The zones of the configuration before; empty: there was none.
    std::span<const ZoneSettings> settings() const noexcept
    {
        return std::span(settings_).first(std::min<std::size_t>(zones_, most_zones));
    }
    void set_settings(std::span<const ZoneSettings> zones) noexcept;
    void add_load(std::int64_t now, std::string_view text) noexcept;

    const Latest<Outage>& outages() const noexcept { return outages_; }
    const Latest<Load>& loads() const noexcept { return loads_; }

private:
    Latest<Outage> outages_;
    Latest<Load> loads_;
    std::array<ZoneSettings, most_zones> settings_{};
    std::uint64_t zones_ = 0;
};

}  // namespace ratelimit

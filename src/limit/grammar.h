#pragma once

#include "limit/policy.h"
#include "limit/reserve.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ratelimit {

/// Whose clock decides.
enum class Clock : std::uint8_t { redis, local };

/// What one ratelimit_zone says.
struct ZoneSettings {
    std::string key;  // with variables
    std::string name;
    std::size_t size = std::size_t{ 1024 } * 1024;  // of the node's memory, in bytes
    Policy policy;                                  // a quota of 0: the rate is a variable
    std::string rate_text;                          // as written; empty: concurrency=
    std::optional<std::string> redis;               // the name of a ratelimit_redis
    std::string redis_parameter;  // the last parameter that needs Redis; empty: none
    Clock clock = Clock::redis;
    /// How many nodes share the zone, for FailMode::local. 0: as many as the fleet has.
    std::int64_t nodes = 1;
    bool cache = true;       // refusals are remembered
    std::int64_t lease = 0;  // the most requests to lease for a busy key; 0: none
    /// The most units of a key that each worker lets in before Redis has counted them; 0: none.
    std::int64_t ahead = 0;
    bool hash_key = false;  // keys are replaced by their hash
    /// Of calendar=: what policy.calendar points to. Only its name is set by read_words.
    std::shared_ptr<TimeZone> calendar;
    std::string start_text;  // of start=, with a variable; empty: policy.start_day

    bool variable_rate() const noexcept { return policy.rate.quota == 0; }
};

/// What one `ratelimit zone=` says.
struct LimitSettings {
    std::string zone_name;
    std::optional<std::int64_t> burst;
    bool nodelay = false;
    std::optional<std::int64_t> delay;
    std::int64_t cost = 1;
    std::string cost_text;    // with variables; empty: `cost`
    std::string charge_text;  // with variables; empty: none
    Reserve reserve;
    std::string reserve_text;  // with variables; empty: `reserve`
    bool shadow = false;

    bool has_reserve() const noexcept { return reserve.number > 0 || !reserve_text.empty(); }

    /// Of messages: "ratelimit zone=name".
    std::string title() const { return "ratelimit zone=" + zone_name; }
};

/// The first error in the words of a directive.
struct WordError {
    std::string word;           // as written; `name=` if a parameter is missing
    std::string_view expected;  // a static text; empty: the parameter is missing

    /// One line: `"ratelimit_zone": invalid "burst=x", expected a number …`.
    std::string message(std::string_view directive) const;
};

using Words = std::span<const std::string_view>;

/// Reads the words after `ratelimit_zone`, the key first, at least two. After an error, `zone`
/// holds what was read so far.
std::optional<WordError> read_words(Words words, ZoneSettings& zone);

/// Reads the time zone of calendar= from this machine, after read_words.
std::optional<WordError> find_time_zone(ZoneSettings& zone);

/// Reads the words after `ratelimit`, at least one, which are not just `off`.
std::optional<WordError> read_words(Words words, LimitSettings& limit);

/// What a limit must fit in its zone.
struct LimitedZone {
    const Policy* policy = nullptr;  // null: there is no such zone
    bool ahead = false;              // it has ahead=
    bool lease = false;              // it has lease=
};

/// Checks a limit against its zone.
std::optional<WordError> check_limit(const LimitSettings& limit, const LimitedZone& zone);

/// What is expected in place of this burst, a static text. Empty: nothing is wrong. With a quota of
/// 0 the rate is a variable.
std::string_view expected_burst(const Policy& policy, std::int64_t burst) noexcept;

/// Whether a zone or a ratelimit_redis block may have this name: letters, digits, _ . and -, not
/// starting with a dot. Names are part of Redis keys, headers, URLs and labels of metrics.
bool good_name(std::string_view name) noexcept;

constexpr bool has_variable(std::string_view text) noexcept
{
    return text.find('$') != text.npos;
}

}  // namespace ratelimit

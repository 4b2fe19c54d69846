#pragma once

#include "rehearse/report/report.h"

#include <optional>
#include <string>

namespace ratelimit::rehearse {

/// "0.1%" or "100".
struct Amount {
    double value = 0;  // 0.001 for 0.1%
    bool percent = false;
};

/// Empty: the text is no number, or it is below 0, infinite or above 100 %.
std::optional<Amount> amount_of(const std::string& text) noexcept;

/// A condition of --fail-if: "refused_keys > 0.1%", "login.refused > 100".
struct FailIf {
    enum class Metric : std::uint8_t {
        refused,            // requests, by a limit, or without a zone by all
        refused_succeeded,  // of these, with 2xx at that time
        refused_keys,       // keys, of any limit, or of a zone's
        refused_clients,    // addresses, by all limits
        newly_refused,      // addresses that only the configuration of --against refuses
    };

    std::string text;  // as written
    std::string zone;  // empty: of all limits, or of any limit
    Metric metric = Metric::refused;
    bool or_equal = false;
    Amount bound;  // percent: of all requests, keys or clients
};

/// Throws InputError.
FailIf parse_fail_if(const std::string& text);

/// One line for the user if the condition holds.
std::optional<std::string> failure_of(const FailIf& condition, const Report& report);

}  // namespace ratelimit::rehearse

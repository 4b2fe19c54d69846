#include "rehearse/report/verdict.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdlib>

namespace ratelimit::rehearse {

namespace {

using Metric = FailIf::Metric;

constexpr std::array<std::string_view, 5> names = {
    // by Metric
    "refused", "refused_succeeded", "refused_keys", "refused_clients", "newly_refused",
};

[[noreturn]] void bad_condition(const std::string& text)
{
    throw InputError(
        "--fail-if: invalid \"" + text
        + "\", expected such as \"refused_keys > 0.1%\" or \"ZONE.refused >= 100\", with refused, "
          "refused_succeeded, refused_keys, refused_clients or newly_refused");
}

std::string_view trimmed(std::string_view text)
{
    const auto first = text.find_first_not_of(' ');
    if (first == text.npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

bool exceeds(const FailIf& condition, std::uint64_t part, std::uint64_t whole) noexcept
{
    if (whole == 0) {
        return false;
    }
    const auto number = static_cast<double>(part);
    const double value = condition.bound.percent ? number / static_cast<double>(whole) : number;
    return condition.or_equal ? value >= condition.bound.value : value > condition.bound.value;
}

/// `keys`: of the limit, or clients of all limits.
std::optional<std::string> failure_by(
    const FailIf& condition, const Outcome& outcome, const KeyTally::Numbers& keys,
    const char* key_name, const std::string& of)
{
    const bool of_requests =
        condition.metric == Metric::refused || condition.metric == Metric::refused_succeeded;
    const std::uint64_t refused =
        condition.metric == Metric::refused ? outcome.refused : outcome.succeeded;
    const std::uint64_t part = of_requests ? refused : keys.keys_refused;
    const std::uint64_t whole = of_requests ? outcome.requests : keys.keys;
    if (!exceeds(condition, part, whole)) {
        return std::nullopt;
    }
    std::string out = condition.text;
    add(out, ": %.4g %% (%" PRIu64 " of %" PRIu64 ") %s%s", percent(part, whole), part, whole,
        of_requests ? "requests" : key_name, of.c_str());
    return out;
}

std::optional<std::string> failure_of_all(const FailIf& condition, const Report& report)
{
    const bool of_clients =
        condition.metric != Metric::refused && condition.metric != Metric::refused_succeeded;
    if (of_clients && !report.total.has_clients()) {
        throw InputError("--fail-if: the log has no $remote_addr to count clients by");
    }
    KeyTally::Numbers clients = report.total.clients;
    if (condition.metric == Metric::newly_refused) {
        if (!report.against) {
            throw InputError("--fail-if: \"newly_refused\" needs --against");
        }
        clients.keys_refused = report.against->newly;
    }
    return failure_by(condition, report.total.counts(), clients, "clients", "");
}

}  // namespace

std::optional<Amount> amount_of(const std::string& text) noexcept
{
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool percent = *end == '%';
    const bool number = end != text.c_str() && *(end + (percent ? 1 : 0)) == '\0';
    if (!number || !std::isfinite(value) || value < 0 || (percent && value > 100)) {
        return std::nullopt;
    }
    return Amount{ value / (percent ? 100 : 1), percent };
}

FailIf parse_fail_if(const std::string& text)
{
    FailIf out;
    out.text = text;
    const auto sign = text.find('>');
    if (sign == text.npos) {
        bad_condition(text);
    }
    out.or_equal = text.compare(sign, 2, ">=") == 0;
    std::string_view name = trimmed(std::string_view(text).substr(0, sign));
    const auto dot = name.rfind('.');
    if (dot != name.npos) {
        out.zone = name.substr(0, dot);
        name.remove_prefix(dot + 1);
    }
    const auto* const known = std::find(names.begin(), names.end(), name);
    out.metric = static_cast<Metric>(known - names.begin());
    const bool of_clients =
        out.metric == Metric::refused_clients || out.metric == Metric::newly_refused;
    const auto bound = amount_of(
        std::string(trimmed(std::string_view(text).substr(sign + (out.or_equal ? 2 : 1)))));
    if (known == names.end() || !bound || (of_clients && !out.zone.empty())) {
        bad_condition(text);
    }
    out.bound = *bound;
    return out;
}

std::optional<std::string> failure_of(const FailIf& condition, const Report& report)
{
    if (condition.zone.empty() && condition.metric != Metric::refused_keys) {
        return failure_of_all(condition, report);
    }
    bool known = condition.zone.empty();
    std::optional<std::string> failure;
    for (const LimitReport& limit : report.limits) {
        const bool meant = condition.zone.empty() ? !limit.shadow : limit.zone == condition.zone;
        known = known || meant;
        if (meant && !failure) {
            failure = failure_by(
                condition, *limit.result, limit.keys, "keys",
                " of " + limit.zone + " at " + limit.location);
        }
    }
    if (!known) {
        throw InputError("--fail-if: no limit of the zone \"" + condition.zone + "\"");
    }
    return failure;
}

}  // namespace ratelimit::rehearse

#include "fleet/override_text.h"

#include "fleet/json_tree.h"
#include "limit/json_text.h"
#include "limit/rate_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace ratelimit::fleet {

namespace {

using Json = nlohmann::json;
using Kind = Override::Kind;

// A stored text must not be longer than longest_text, even if each byte of `by` and the reason is
// escaped.
constexpr std::size_t longest_rate = 64;
constexpr std::size_t longest_by = 256;
constexpr std::size_t longest_reason = 200;
// In the year 275760, the last that ECMAScript has; exact as a double.
constexpr std::int64_t latest_ms = 8'640'000'000'000'000;

/// Empty: it is no object, or too long. Members of its members are left out.
std::optional<JsonTree> parsed(std::string_view text)
{
    auto json = text.size() > longest_text ? std::nullopt : parse_json(text, 1);
    return json && json->kind == JsonTree::Kind::object ? std::move(json) : std::nullopt;
}

std::optional<std::int64_t> number_of(const Json& value, std::int64_t least, std::int64_t most)
{
    // Without this a large unsigned number would become negative.
    if (!value.is_number_integer()
        || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX)) {
        return std::nullopt;
    }
    const auto number = value.get<std::int64_t>();
    return number >= least && number <= most ? std::optional(number) : std::nullopt;
}

bool is_true(const Json& value)
{
    return value.is_boolean() && value.get<bool>();
}

bool set_rate(const Json& value, Override& out, std::string& text)
{
    auto rate =
        value.is_string() ? parse_rate(value.get_ref<const std::string&>()) : std::optional<Rate>{};
    if (!rate && value.is_string()) {
        rate = parse_calendar_rate(value.get_ref<const std::string&>());
    }
    // Leading zeros could make it long.
    if (!rate || value.get_ref<const std::string&>().size() > longest_rate) {
        return false;
    }
    out.kind = Kind::rate;
    out.rate = *rate;
    text = value.get_ref<const std::string&>();
    return true;
}

bool set_concurrency(const Json& value, Override& out)
{
    const auto most = number_of(value, 1, max_quota);
    if (!most) {
        return false;
    }
    out.kind = Kind::concurrency;
    out.rate.quota = *most;
    return true;
}

/// Sets a member of a change that decides its kind. Returns the error; empty: none.
std::string set_kind(const std::string& name, const Json& value, OverrideChange& change)
{
    if (name == "rate") {
        return set_rate(value, change.value, change.rate_text)
            ? ""
            : "invalid \"rate\", expected a text such as \"100r/s\", \"1000r/15m\" or "
              "\"10000r/month\"";
    }
    if (name == "concurrency") {
        return set_concurrency(value, change.value)
            ? ""
            : "invalid \"concurrency\", expected a number from 1 to 1000000000";
    }
    change.value.kind = name == "block" ? Kind::block : Kind::unlimited;
    return is_true(value) ? "" : "invalid \"" + name + "\", expected true";
}

std::string unknown_member(const std::string& name)
{
    return "unknown member " + json_string(name.substr(0, 64))
        + ", expected rate, burst, concurrency, block, unlimited, for, until or reason";
}

/// Members that may be null, or that a node adds to an override.
bool is_known(std::string_view name) noexcept
{
    constexpr std::array names = { "rate",  "concurrency", "block",           "unlimited",
                                   "burst", "for",         "until",           "reason",
                                   "by",    "at",          "for_seconds_left" };
    return std::find(names.begin(), names.end(), name) != names.end();
}

/// Sets when a change ends: seconds since the epoch, to the millisecond.
std::string set_until(const Json& value, OverrideTime& time)
{
    const double seconds = value.is_number() ? value.get<double>() : 0;
    if (!(seconds >= 1 && seconds <= static_cast<double>(latest_ms) / 1000)) {
        return "invalid \"until\", expected seconds since the epoch, as GET answers";
    }
    time.until = milliseconds{ std::llround(seconds * 1000) };
    return "";
}

/// Sets any other member of a change.
std::string set_detail(const JsonTree& member, OverrideChange& change)
{
    const auto& [name, kind, value, parts] = member;
    if (member.is_null() || name == "by" || name == "at" || name == "for_seconds_left") {
        return is_known(name) ? "" : unknown_member(name);
    }
    if (name == "burst") {
        change.value.burst = number_of(value, 0, max_quota);
        return change.value.burst ? ""
                                  : "invalid \"burst\", expected a number from 0 to 1000000000";
    }
    if (name == "reason") {
        change.reason = value.is_string() ? value.get<std::string>() : std::string{};
        return !change.reason.empty() && change.reason.size() <= longest_reason
            ? ""
            : "invalid \"reason\", expected a text of at most 200 bytes";
    }
    if (name == "until") {
        return set_until(value, change.time);
    }
    if (name != "for") {
        return unknown_member(name);
    }
    const auto time = value.is_string() ? parse_seconds(value.get_ref<const std::string&>())
                                        : std::optional<microseconds>{};
    if (!time) {
        return "invalid \"for\", expected a text such as \"90s\", \"10m\" or \"1h\", at most "
               "\"366d\"";
    }
    change.time.lasts = std::chrono::duration_cast<milliseconds>(*time);
    return "";
}

/// The kind of an override in Redis, by its first member that this version knows.
void set_stored_kind(const JsonTree& json, StoredOverride& stored)
{
    if (const JsonTree* block = json.find("block")) {
        stored.value.kind = is_true(block->single) ? Kind::block : Kind::unknown;
    } else if (const JsonTree* unlimited = json.find("unlimited")) {
        stored.value.kind = is_true(unlimited->single) ? Kind::unlimited : Kind::unknown;
    } else if (const JsonTree* most = json.find("concurrency")) {
        set_concurrency(most->single, stored.value);
    } else if (const JsonTree* rate = json.find("rate");
               rate != nullptr && set_rate(rate->single, stored.value, stored.rate_text)) {
        if (const JsonTree* burst = json.find("burst")) {
            stored.value.burst = number_of(burst->single, 0, max_quota);
            stored.value.kind = stored.value.burst ? Kind::rate : Kind::unknown;
        }
    }
}

}  // namespace

std::string parse_change(std::string_view text, OverrideChange& change)
{
    if (text.find('\0') != std::string_view::npos) {
        return "expected JSON without a zero byte";  // the parser would take it as the end
    }
    const auto json = parsed(text);
    if (!json) {
        return "expected a JSON object, such as {\"rate\":\"100r/m\"}, {\"block\":true} or "
               "{\"unlimited\":true}";
    }
    int kinds = 0;
    for (const JsonTree& member : json->parts) {
        const std::string& name = member.name;
        if (json->find(name) != &member) {
            return "member " + json_string(name.substr(0, 64)) + " stands twice";
        }
        const bool decides = !member.is_null()
            && (name == "rate" || name == "concurrency" || name == "block" || name == "unlimited");
        kinds += decides ? 1 : 0;
        std::string error =
            decides ? set_kind(name, member.single, change) : set_detail(member, change);
        if (!error.empty()) {
            return error;
        }
    }
    if (change.time.lasts.count() != 0 && change.time.until.count() != 0) {
        return "expected one of for and until";
    }
    if (kinds != 1) {
        return "expected one of rate, concurrency, block and unlimited";
    }
    if (change.value.burst && change.value.kind != Kind::rate) {
        return "invalid \"burst\", expected only beside \"rate\"";
    }
    return "";
}

std::string begin_noted(std::string_view by)
{
    return "{\"by\":" + json_string(by.substr(0, longest_by));
}

std::string begin_stored(const OverrideChange& change, std::string_view by)
{
    std::string text = "{";
    switch (change.value.kind) {
    case Kind::rate:
        text += "\"rate\":" + json_string(change.rate_text);
        if (change.value.burst) {
            text += ",\"burst\":" + std::to_string(*change.value.burst);
        }
        break;
    case Kind::concurrency:
        text += "\"concurrency\":" + std::to_string(change.value.rate.quota);
        break;
    case Kind::block:
        text += "\"block\":true";
        break;
    default:
        text += "\"unlimited\":true";
        break;
    }
    text += ",\"by\":" + json_string(by.substr(0, longest_by));
    return change.reason.empty() ? text : text + ",\"reason\":" + json_string(change.reason);
}

StoredOverride parse_stored(std::string_view text)
{
    StoredOverride stored;
    const auto json = parsed(text);
    if (!json) {
        return stored;
    }
    set_stored_kind(*json, stored);
    if (const JsonTree* until = json->find("until"); until != nullptr && !until->is_null()) {
        const auto end = number_of(until->single, 1, latest_ms);
        stored.value.end = milliseconds{ end.value_or(0) };
        stored.value.kind = end ? stored.value.kind : Kind::unknown;
    }
    if (const JsonTree* at = json->find("at")) {
        stored.at = milliseconds{ number_of(at->single, 0, latest_ms).value_or(0) };
    }
    const auto set_text = [&json](std::string_view name, std::string& out) {
        const JsonTree* member = json->find(name);
        if (member != nullptr && member->single.is_string()) {
            out = member->single.get<std::string>();
        }
    };
    set_text("by", stored.by);
    set_text("reason", stored.reason);
    return stored;
}

}  // namespace ratelimit::fleet

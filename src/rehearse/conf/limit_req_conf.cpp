#include "rehearse/conf/limit_req_conf.h"

#include "limit/rate_text.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

constexpr std::int64_t thousandths = 1000;
constexpr std::int64_t largest_number = 1'000'000'000;

[[noreturn]] void fail_with(const Directive& directive, const std::string& word)
{
    fail_at(directive.place, "invalid parameter \"" + word + "\" of \"" + directive.name + "\"");
}

/// "10r/s" or "30r/m", without a count of seconds or minutes.
std::int64_t rate_of(const Directive& directive, const std::string& word)
{
    const auto rate = parse_rate(std::string_view(word).substr(word.find('=') + 1));
    if (!rate || (!word.ends_with("r/s") && !word.ends_with("r/m"))) {
        fail_with(directive, word);
    }
    return rate->quota * thousandths / (rate->window / std::chrono::seconds{ 1 });
}

std::int64_t number_of(const Directive& directive, const std::string& word)
{
    const auto number =
        parse_number(std::string_view(word).substr(word.find('=') + 1), 1, largest_number);
    if (!number) {
        fail_with(directive, word);
    }
    return *number * thousandths;
}

}  // namespace

LimitReqZone read_limit_req_zone(const Directive& directive)
{
    LimitReqZone zone;
    zone.place = directive.place;
    directive.expect_args(3);
    zone.key = directive.args[0];
    for (std::size_t i = 1; i < directive.args.size(); ++i) {
        const std::string& word = directive.args[i];
        if (word.starts_with("zone=")) {
            zone.name = word.substr(5, word.find(':') - 5);
        } else if (word.starts_with("rate=")) {
            zone.rate = rate_of(directive, word);
            zone.rate_text = word.substr(5);
        } else if (word != "sync") {
            fail_with(directive, word);
        }
    }
    if (zone.name.empty() || zone.rate == 0) {
        fail_at(directive.place, "\"limit_req_zone\" must have a zone and a rate");
    }
    return zone;
}

std::optional<LimitReqConf> read_limit_req(
    const Directive& directive, const std::vector<LimitReqZone>& zones)
{
    LimitReqConf limit;
    limit.place = directive.place;
    std::string name;
    for (const std::string& word : directive.args) {
        if (word.starts_with("zone=")) {
            name = word.substr(5);
        } else if (word.starts_with("burst=")) {
            limit.burst = number_of(directive, word);
        } else if (word.starts_with("delay=")) {
            limit.delay = number_of(directive, word);
        } else if (word == "nodelay") {
            limit.delay = LimitReqConf::no_delay;
        } else {
            fail_with(directive, word);
        }
    }
    const auto zone = std::find_if(
        zones.begin(), zones.end(), [&name](const LimitReqZone& one) { return one.name == name; });
    if (zone == zones.end()) {
        return std::nullopt;
    }
    limit.zone = static_cast<std::size_t>(zone - zones.begin());
    return limit;
}

std::string policy_text(const LimitReqConf& limit, const LimitReqZone& zone)
{
    std::string out = "limit_req, " + zone.rate_text;
    if (limit.burst > 0) {
        out += ", burst " + std::to_string(limit.burst / thousandths);
    }
    if (limit.delay == LimitReqConf::no_delay) {
        return out + ", nodelay";
    }
    return limit.delay > 0 ? out + ", delay " + std::to_string(limit.delay / thousandths) : out;
}

}  // namespace ratelimit::rehearse

// The words of ratelimit_zone and of ratelimit.

#include "fuzz.h"

#include "limit/grammar.h"

#include <vector>

using namespace ratelimit;

namespace {

std::vector<std::string_view> split(std::string_view text)
{
    std::vector<std::string_view> words;
    while (true) {
        const auto space = text.find(' ');
        words.push_back(text.substr(0, space));
        if (space == text.npos) {
            return words;
        }
        text.remove_prefix(space + 1);
    }
}

void must_be_clear(const WordError& error)
{
    must(!error.message("ratelimit").empty());
    must(!error.expected.empty() || error.word.ends_with('='));
}

}  // namespace

/// Words between spaces: of a zone up to the first newline, then of a limit.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const auto text = text_of(data, size);
    const auto line = text.find('\n');
    const auto of_zone = split(text.substr(0, line));
    if (of_zone.size() < 2) {
        return 0;
    }
    ZoneSettings zone;
    if (const auto error = read_words(of_zone, zone)) {
        must_be_clear(*error);
        return 0;
    }
    must(good_name(zone.name) && zone.size >= 32'768 && zone.lease >= 0 && zone.nodes >= 0);
    must(zone.variable_rate() == has_variable(zone.rate_text));
    must(zone.variable_rate() || zone.policy.possible());
    if (line == text.npos) {
        return 0;
    }
    LimitSettings limit;
    const auto of_limit = split(text.substr(line + 1));
    auto error = read_words(of_limit, limit);
    if (!error) {
        error = check_limit(limit, { &zone.policy, zone.ahead > 0, zone.lease > 0 });
    }
    if (error) {
        must_be_clear(*error);
        return 0;
    }
    must(limit.cost >= 0 && !limit.zone_name.empty());
    must(limit.reserve.number >= 0 && (limit.reserve_text.empty() || limit.reserve.number == 0));
    must(!limit.delay || zone.policy.algorithm == Algorithm::leaky_bucket);
    return 0;
}

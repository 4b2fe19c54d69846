// Rates, numbers and times from nginx.conf or variables.

#include "fuzz.h"

#include "limit/rate_headers.h"
#include "limit/rate_text.h"

using namespace ratelimit;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const auto text = text_of(data, size);
    if (const auto rate = parse_rate(text)) {
        must(rate->quota >= 1 && rate->quota <= max_quota);
        must(rate->window.count() > 0 && rate->window <= max_window);
        for (std::size_t i = 0; i < algorithm_count; ++i) {
            const Policy policy{ static_cast<Algorithm>(i), *rate, max_quota, {} };
            const QuotaPolicy shown = quota_policy(policy);
            const bool windowed = policy.algorithm != Algorithm::concurrency;
            must(policy.limit() >= 1 && shown.quota >= 1 && shown.window_s >= (windowed ? 1 : 0));
            must(shown.quota <= 1'000'000'001 && shown.window_s < 1'000'000'000'000'000);
            must(policy.bucket_width().count() > 0);
        }
    }
    must(!expected_rate(text).empty());
    if (const auto number = parse_number(text, 0, max_cost)) {
        must(*number >= 0 && *number <= max_cost);
    }
    if (const auto time = parse_seconds(text)) {
        must(time->count() >= 1'000'000 && *time <= max_window);
    }
    return 0;
}

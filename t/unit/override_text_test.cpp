// The JSON of overrides: what the API accepts, its errors, and what Redis may have.

#include "all_algorithms.h"
#include "fleet/fleet_keys.h"
#include "fleet/override_text.h"

#include <gtest/gtest.h>

namespace ratelimit::fleet {
namespace {

using Kind = Override::Kind;

OverrideChange changed(std::string_view text)
{
    OverrideChange change;
    EXPECT_EQ(parse_change(text, change), "") << text;
    return change;
}

std::string error_of(std::string_view text)
{
    OverrideChange change;
    return parse_change(text, change);
}

TEST(OverrideText, a_change_has_one_kind_and_perhaps_a_time)
{
    const auto rate = changed(R"({"rate":"1000r/15m","burst":50,"for":"1h"})");
    EXPECT_EQ(rate.value.kind, Kind::rate);
    EXPECT_EQ(rate.value.rate, (Rate{ 1000, std::chrono::minutes{ 15 } }));
    EXPECT_EQ(rate.value.burst, 50);
    EXPECT_EQ(rate.time.lasts, std::chrono::hours{ 1 });
    EXPECT_EQ(changed(R"({"block":true})").value.kind, Kind::block);
    EXPECT_EQ(changed(R"({"block":true})").time.lasts.count(), 0);
    EXPECT_EQ(
        changed(R"( { "unlimited" : true, "for":"90" } )").time.lasts, std::chrono::seconds{ 90 });
    EXPECT_EQ(changed(R"({"concurrency":7})").value.rate.quota, 7);
}

TEST(OverrideText, an_override_is_set_as_it_is_read)
{
    const auto change = changed(
        R"({"rate":"5r/s","until":1795377904.653,"for_seconds_left":7200.5,"by":"n","at":1,"reason":null,"burst":null,"for":null})");
    EXPECT_EQ(change.time.until.count(), 1'795'377'904'653);
    EXPECT_EQ(change.time.lasts.count(), 0);
    EXPECT_EQ(change.reason, "");
    EXPECT_EQ(changed(R"({"block":true,"until":null})").time.until.count(), 0);
    EXPECT_EQ(changed(R"({"block":true,"until":17})").time.until.count(), 17'000);
    EXPECT_EQ(error_of(R"({"block":true,"until":17,"for":"1h"})"), "expected one of for and until");
    for (const auto* until : { "0", "-5", "1e300", "8640000000001", "\"soon\"", "true" }) {
        EXPECT_EQ(
            error_of(std::string(R"({"block":true,"until":)") + until + "}").substr(0, 16),
            "invalid \"until\",");
    }
    EXPECT_EQ(
        changed(R"({"block":true,"rate":null,"concurrency":null,"unlimited":null})").value.kind,
        Kind::block);
    EXPECT_EQ(
        error_of(R"({"rate":null,"block":null})"),
        "expected one of rate, concurrency, block and unlimited");
    EXPECT_EQ(error_of(R"({"block":true,"later":null})").substr(0, 14), "unknown member");
}

TEST(OverrideText, times_that_no_calendar_has_are_not_read)
{
    EXPECT_EQ(parse_stored(R"({"block":true,"until":8640000000000001})").value.kind, Kind::unknown);
    EXPECT_EQ(parse_stored(R"({"block":true,"until":8640000000000000})").value.kind, Kind::block);
    EXPECT_EQ(parse_stored(R"({"block":true,"at":9007199254740992})").at.count(), 0);
}

TEST(OverrideText, errors_name_the_member_and_what_was_expected)
{
    EXPECT_EQ(error_of("").substr(0, 22), "expected a JSON object");
    EXPECT_EQ(error_of("[1]").substr(0, 22), "expected a JSON object");
    EXPECT_EQ(error_of("{\"rate\":\"1r/s\"").substr(0, 22), "expected a JSON object");
    EXPECT_EQ(error_of("{}"), "expected one of rate, concurrency, block and unlimited");
    EXPECT_EQ(
        error_of(R"({"block":true,"unlimited":true})"),
        "expected one of rate, concurrency, block and unlimited");
    EXPECT_EQ(error_of(R"({"rate":5})").substr(0, 15), "invalid \"rate\",");
    EXPECT_EQ(error_of(R"({"rate":"5"})").substr(0, 15), "invalid \"rate\",");
    EXPECT_EQ(error_of(R"({"block":false})"), "invalid \"block\", expected true");
    EXPECT_EQ(error_of(R"({"block":1})"), "invalid \"block\", expected true");
    for (const auto* burst :
         { "-1", "1.5", "1000000001", "\"5\"", "18446744073709551615", "1e30" }) {
        EXPECT_EQ(
            error_of(std::string(R"({"rate":"1r/s","burst":)") + burst + "}"),
            "invalid \"burst\", expected a number from 0 to 1000000000");
    }
    EXPECT_EQ(
        error_of(R"({"block":true,"burst":1})"),
        "invalid \"burst\", expected only beside \"rate\"");
    EXPECT_EQ(error_of(R"({"block":true,"for":"soon"})").substr(0, 14), "invalid \"for\",");
    EXPECT_EQ(error_of(R"({"concurrency":0})").substr(0, 22), "invalid \"concurrency\",");
    EXPECT_EQ(
        error_of("{\"block\":true,\"til\\n\":1}"),
        "unknown member \"til\\u000A\", expected rate, burst, concurrency, block, unlimited, "
        "for, until or reason");
    EXPECT_EQ(
        error_of(R"({"block":true,"reason":""})"),
        "invalid \"reason\", expected a text of at most 200 bytes");
    EXPECT_EQ(error_of(R"({"block":true,"reason":7})").substr(0, 16), "invalid \"reason\"");
    EXPECT_EQ(
        error_of(R"({"block":true,"reason":")" + std::string(201, 'x') + "\"}").substr(0, 16),
        "invalid \"reason\"");
}

TEST(OverrideText, bytes_after_a_zero_byte_and_members_that_stand_twice_are_errors)
{
    const std::string_view block = R"({"block":true})";
    EXPECT_EQ(error_of(std::string(block) + '\0'), "expected JSON without a zero byte");
    EXPECT_EQ(error_of(std::string(block) + '\0' + "more"), "expected JSON without a zero byte");
    EXPECT_EQ(error_of(R"({"block":true,"block":true})"), "member \"block\" stands twice");
    EXPECT_EQ(error_of(R"({"rate":"1r/s","rate":"9r/s"})"), "member \"rate\" stands twice");
}

TEST(OverrideText, a_reason_is_stored_and_read_again)
{
    const auto change = changed(R"({"block":true,"reason":"ticket \"7\"\n"})");
    const auto stored = parse_stored(begin_stored(change, "edge 10.0.0.1") + ",\"at\":5}");
    EXPECT_EQ(stored.reason, "ticket \"7\"\n");
    EXPECT_EQ(stored.by, "edge 10.0.0.1");
    EXPECT_EQ(parse_stored(R"({"block":true,"reason":{"ticket":7}})").reason, "");
    EXPECT_EQ(parse_stored(R"({"block":true})").reason, "");
    const auto longest = changed(R"({"block":true,"reason":")" + std::string(200, '\x7f') + "\"}");
    const auto read = parse_stored(begin_stored(longest, std::string(5000, '\xff')) + "}");
    EXPECT_EQ(read.reason.size(), 200U) << "it is never too long to be read";
}

TEST(OverrideText, text_that_is_too_long_or_too_deep_is_an_error)
{
    EXPECT_NE(error_of(R"({"block":true)" + std::string(longest_text, ' ') + "}"), "");
    std::string deep(4000, '[');
    EXPECT_NE(error_of(deep), "");
    EXPECT_EQ(parse_stored(deep).value.kind, Kind::unknown);
}

TEST(OverrideText, what_is_stored_is_never_too_long_to_be_read)
{
    EXPECT_NE(error_of("{\"rate\":\"" + std::string(4000, '0') + "5r/s\"}"), "");
    const auto change = changed(R"({"rate":"5r/s"})");
    const auto stored =
        parse_stored(begin_stored(change, std::string(5000, '\xff')) + ",\"at\":5}");
    EXPECT_EQ(stored.value, change.value);
    EXPECT_EQ(stored.at, milliseconds{ 5 });
}

TEST(OverrideText, what_is_stored_is_read_again)
{
    for (const auto* text :
         { R"({"rate":"5r/10s"})", R"({"rate":"5r/s","burst":0})", R"({"concurrency":3})",
           R"({"block":true})", R"({"unlimited":true})" }) {
        const auto change = changed(text);
        const auto stored = parse_stored(
            begin_stored(change, "node\xff 10.0.0.1 \"me\"") + ",\"at\":5,\"until\":9}");
        auto expected = change.value;
        expected.end = milliseconds{ 9 };
        EXPECT_EQ(stored.value, expected) << text;
        EXPECT_EQ(stored.rate_text, change.rate_text);
        EXPECT_EQ(stored.at, milliseconds{ 5 });
        EXPECT_EQ(stored.by, "node\xef\xbf\xbd 10.0.0.1 \"me\"");
    }
}

TEST(OverrideText, unknown_members_are_passed_over_and_unknown_kinds_change_nothing)
{
    const auto later = parse_stored(R"({"rate":"5r/s","later":{"x":[1,2]},"at":1})");
    EXPECT_EQ(later.value.kind, Kind::rate);
    for (const auto* text :
         { "", "null", "7", "{}", "{\"later\":1}", "{\"rate\":\"fast\"}", "{\"block\":\"yes\"}",
           "{\"rate\":\"1r/s\",\"burst\":-1}", "{\"block\":true,\"until\":\"soon\"}",
           "{\"block\":true,\"until\":1e300}", "{\"concurrency\":99999999999}", "\xff\xfe",
           "{\"block\":true" }) {
        const auto stored = parse_stored(text);
        EXPECT_EQ(stored.value.kind, Kind::unknown) << text;
        Policy policy{ Algorithm::gcra, { 5, std::chrono::seconds{ 1 } }, 3, {} };
        const Policy before = policy;
        apply(stored.value, policy);
        EXPECT_EQ(policy, before);
    }
}

TEST(OverrideText, an_override_fits_only_the_algorithms_that_have_its_parts)
{
    for (const Algorithm algorithm : all_algorithms) {
        const bool concurrency = algorithm == Algorithm::concurrency;
        const Policy policy{ algorithm, { 1, std::chrono::seconds{ 1 } }, {}, {} };
        const auto fits = [&policy](std::string_view text) {
            return misfit(changed(text).value, policy).empty();
        };
        EXPECT_NE(fits(R"({"rate":"5r/s"})"), concurrency) << name_of(algorithm);
        EXPECT_EQ(fits(R"({"concurrency":5})"), concurrency);
        EXPECT_EQ(fits(R"({"rate":"5r/s","burst":3})"), keeps_arrival_time(algorithm));
        EXPECT_TRUE(fits(R"({"block":true})"));
        EXPECT_TRUE(fits(R"({"unlimited":true})"));
        EXPECT_EQ(
            fits(R"({"rate":"10000001r/d"})"),
            !concurrency && algorithm != Algorithm::sliding_window_log);
        EXPECT_EQ(
            fits(R"({"rate":"5r/s","burst":0})"),
            keeps_arrival_time(algorithm) && algorithm != Algorithm::token_bucket);
        EXPECT_FALSE(fits(R"({"rate":"1r/366d","burst":1000000000})"));
    }
}

TEST(OverrideText, a_rate_keeps_the_limits_burst_unless_it_has_one)
{
    Policy policy{ Algorithm::gcra, { 5, std::chrono::seconds{ 1 } }, 3, {} };
    apply(changed(R"({"rate":"9r/s"})").value, policy);
    EXPECT_EQ(policy.rate.quota, 9);
    EXPECT_EQ(policy.burst, 3);
    apply(changed(R"({"rate":"9r/s","burst":1})").value, policy);
    EXPECT_EQ(policy.burst, 1);
}

TEST(ChangeId, ids_are_read_as_they_were_written)
{
    const std::string key("a\0b", 3);
    for (const ChangeId id : { ChangeId{ ChangeId::Kind::zone_override, "zone", {} },
                               ChangeId{ ChangeId::Kind::key_override, "zone", key },
                               ChangeId{ ChangeId::Kind::freed_key, "zone", "k" } }) {
        const std::string text = id.text();
        const auto read = parse_change_id(text);
        ASSERT_TRUE(read);
        EXPECT_EQ(read->kind, id.kind);
        EXPECT_EQ(read->zone, id.zone);
        EXPECT_EQ(read->key, id.key);
    }
    for (const std::string& text :
         { std::string(), std::string("z"), std::string("kzone"), std::string("x\0y", 3),
           std::string("k\0key", 5), std::string("kzone\0", 6), std::string("zzo\0ne", 6),
           "kzone" + std::string(1, '\0') + std::string(longest_key + 1, 'x') }) {
        EXPECT_FALSE(parse_change_id(text)) << text;
    }
}

}  // namespace
}  // namespace ratelimit::fleet

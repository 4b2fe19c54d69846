// How the API parses an address and writes JSON.

#include "http/api/path.h"
#include "limit/json_text.h"
#include "limit/percent_text.h"

#include <gtest/gtest.h>

namespace ratelimit::http {
namespace {

using namespace std::string_view_literals;
using View = ApiPath::View;

View view_of(std::string_view path, std::string_view location = "/ops/")
{
    return parse_api_path(location, path, path, false, {}).view;
}

std::string key_of(
    std::string_view raw, std::string_view path = "/ops/zones/z/keys/as/nginx/sees",
    std::string_view arguments = {}, std::string_view location = "/ops/", bool rewritten = false)
{
    const auto found = parse_api_path(location, path, raw, rewritten, arguments);
    return found.view == View::key ? found.key : "no key";
}

TEST(ApiPath, is_below_its_location)
{
    EXPECT_EQ(view_of("/ops/"), View::dashboard);
    EXPECT_EQ(view_of("/ops/metrics"), View::metrics);
    EXPECT_EQ(view_of("/ops/redis"), View::redis);
    EXPECT_EQ(view_of("/ops/fleet"), View::fleet);
    EXPECT_EQ(view_of("/ops/fleet/more"), View::nothing);
    EXPECT_EQ(view_of("/ops/zones"), View::zones);
    EXPECT_EQ(view_of("/ops/zones/"), View::zones);
    EXPECT_EQ(view_of("/ops/zones/z"), View::zones);
    EXPECT_EQ(view_of("/ops/zones/z/keys/k"), View::key);
    EXPECT_EQ(view_of("/ops/zones/z/history"), View::history);
    EXPECT_EQ(view_of("/ops/zones/z/history/"), View::history);
    EXPECT_EQ(view_of("/ops/zones/z/history/more"), View::nothing);
    EXPECT_EQ(view_of("/"), View::nothing);
    EXPECT_EQ(view_of("/other/metrics"), View::nothing);
    EXPECT_EQ(view_of("/ops/metrics/more"), View::nothing);
    EXPECT_EQ(view_of("/ops/zones/z/keys"), View::no_key);
    EXPECT_EQ(view_of("/ops/zones/z/keys/"), View::no_key);
    EXPECT_EQ(view_of("/ops/zones/z/other/k"), View::nothing);
}

TEST(ApiPath, of_an_override_ends_in_that_word)
{
    const auto find = [](std::string_view path, std::string_view arguments = {},
                         bool rewritten = false) {
        return parse_api_path("/ops/", path, path, rewritten, arguments);
    };
    for (const bool rewritten : { false, true }) {
        const auto found = find("/ops/zones/z/keys/a/b/override", {}, rewritten);
        EXPECT_EQ(found.view, View::override_key);
        EXPECT_EQ(found.key, "a/b");
        EXPECT_EQ(found.zone, "z");
    }
    EXPECT_EQ(find("/ops/zones/z/override").view, View::override_zone);
    EXPECT_EQ(find("/ops/zones/z/override", "rate=1").view, View::override_zone);
    EXPECT_EQ(find("/ops/zones/z/overrides", "after=1").view, View::overrides);
    EXPECT_EQ(find("/ops/overrides", "after=1").view, View::overrides);
    EXPECT_FALSE(find("/ops/overrides").zone);
    EXPECT_EQ(find("/ops/history", "since=1").view, View::history);
    EXPECT_FALSE(find("/ops/history").zone);
    EXPECT_EQ(find("/ops/zones/z/override/more").view, View::nothing);
    EXPECT_EQ(find("/ops/zones/z/overrides/more").view, View::nothing);
    for (const auto* path : { "/ops/zones/z/override", "/ops/zones/z/keys/override" }) {
        EXPECT_EQ(find(path, "key=a%2Fb").view, View::override_key);
        EXPECT_EQ(find(path, "key=a%2Fb").key, "a/b");
        EXPECT_EQ(find(path, "hash=0123").named_by, ApiPath::NamedBy::hash);
        EXPECT_EQ(find(path, "id=0123").named_by, ApiPath::NamedBy::id);
        EXPECT_EQ(find(path, "key=").view, View::no_key) << "not the whole zone";
        EXPECT_EQ(find(path, "key=%zz").view, View::no_key);
    }
    EXPECT_EQ(find("/ops/zones/z/keys/override").view, View::key) << "a key of this name";
    EXPECT_EQ(find("/ops/zones/z/keys/x/../a/override").view, View::no_key);
    EXPECT_EQ(find("/ops/zones/z/keys//override").view, View::no_key) << "an empty key";
    const auto slash = parse_api_path(
        "/ops/", "/ops/zones/z/keys/override", "/ops/zones/z/keys/%2F/override", false, {});
    EXPECT_EQ(slash.view, View::override_key);
    EXPECT_EQ(slash.key, "/");
    const auto encoded = parse_api_path(
        "/ops/", "/ops/zones/z/keys/a/override", "/ops/zones/z/keys/a%2Foverride", false, {});
    EXPECT_EQ(encoded.view, View::key);
    EXPECT_EQ(encoded.key, "a/override");
}

TEST(ApiPath, with_dots_that_nginx_has_resolved_names_no_view)
{
    // A script writes the keys "../../z", ".." and "." below zones/z/keys/, percent-encoded.
    const std::pair<std::string_view, std::string_view> paths[] = {
        { "/ops/zones/z/override", "/ops/zones/z/keys/..%2F..%2Fz/override" },
        { "/ops/zones/y/override", "/ops/zones/z/keys/..%2F..%2Fy/override" },
        { "/ops/zones/z/override", "/ops/zones/z/keys/../override" },
        { "/ops/zones/z/keys/override", "/ops/zones/z/keys/./override" },
        { "/ops/zones/z/keys/override", "/ops/zones/z/keys/%2E/override" },
        { "/ops/zones/z/keys/b", "/ops/zones/z/keys/a%2F..%2Fb" },
        { "/ops/zones/z/history", "/ops/zones/z/keys/../history" },
        { "/ops/zones/z/overrides", "/ops/zones/z/keys/%2e%2E/overrides" },
        { "/ops/zones/z", "/ops/zones/z/keys/.." },
        { "/ops/", "/ops/zones/z/keys/..%2F..%2F..%2F" },
        { "/ops", "/ops/zones/.." },
        { "/ops/overrides", "/ops/x/../overrides" },
        { "/ops/metrics", "/ops/./metrics" },
    };
    for (const auto& [path, raw] : paths) {
        for (const bool rewritten : { false, true }) {
            EXPECT_EQ(
                parse_api_path("/ops/", path, raw, rewritten, {}).view,
                path == "/ops" ? View::nothing : View::no_key)
                << raw;
        }
    }
}

TEST(ApiPath, works_in_a_location_without_a_final_slash)
{
    EXPECT_EQ(view_of("/ops", "/ops"), View::slash_missing);
    EXPECT_EQ(view_of("/ops/", "/ops"), View::dashboard);
    EXPECT_EQ(view_of("/ops/redis", "/ops"), View::redis);
    EXPECT_EQ(view_of("/opsredis", "/ops"), View::nothing);
    EXPECT_EQ(view_of("/redis", "/"), View::redis);
}

TEST(ApiPath, takes_the_key_as_it_was_sent)
{
    EXPECT_EQ(key_of("/ops/zones/z/keys/a%2Fb%3fc%25"), "a/b?c%");
    EXPECT_EQ(key_of("/ops/zones/z/keys//a//b/"), "/a//b/");
    EXPECT_EQ(key_of("/ops/zones/z/keys/a?rate=1r/s"), "a");
    EXPECT_EQ(key_of("//ops//%7aones/z//keys/a"), "a") << "nginx merges slashes";
    EXPECT_EQ(key_of("/a/b/zones/z/keys/k", "/a/b/zones/z/keys/k", {}, "/a/b/"), "k");
    EXPECT_EQ(key_of("/zones/z/keys/k", "/zones/z/keys/k", {}, "/"), "k");
    EXPECT_EQ(key_of("/ops/zones/z/keys/%2F", "/ops/zones/z/keys/"), "/");
}

TEST(ApiPath, takes_the_key_of_a_rewritten_request_from_nginxs_path)
{
    const auto key = [](std::string_view raw) {
        return key_of(raw, "/ops/zones/z/keys/as/nginx/sees", {}, "/ops/", true);
    };
    for (const auto* raw : { "", "/", "/elsewhere", "/ops/zones/other/keys/k", "/a..b/..c?/../" }) {
        EXPECT_EQ(key(raw), "as/nginx/sees") << raw;
    }
    for (const auto* raw :
         { "/admin/zones/other/keys/..%2F..%2Fz%2Fkeys%2Fk", "/x/../y", "/%2e%2e/", "/%" }) {
        EXPECT_EQ(key(raw), "no key") << raw << ": possibly a key of another zone";
    }
}

TEST(ApiPath, has_no_key_if_the_raw_path_leads_elsewhere)
{
    for (const auto* raw :
         { "/elsewhere", "/ops/zones/other/keys/k", "/ops/zones/other/keys/..%2F..%2Fz%2Fkeys%2Fk",
           "/ops/zones/other/keys/%2e%2E/../z/keys/k", "/ops/x/../zones/z/keys/k",
           "/ops/zones/z/keys/../../z/keys/k", "/", "/ops/zones/z/keys/%", "/ops/zones/z/keys/%0",
           "/ops/zones/z/keys/%gg" }) {
        EXPECT_EQ(key_of(raw), "no key") << raw;
    }
}

TEST(ApiPath, takes_keys_that_no_path_can_have_as_an_argument)
{
    const auto key = [](std::string_view arguments) {
        return key_of("/ops/zones/z/keys", "/ops/zones/z/keys", arguments);
    };
    EXPECT_EQ(key("key=%2E%2E"), "..");
    EXPECT_EQ(key("other=1&key=a+b%26&key=second"), "a+b&");
    EXPECT_EQ(key("key=%00"), std::string(1, '\0'));
    EXPECT_EQ(key("key="), "no key");
    EXPECT_EQ(key("key"), "no key");
    EXPECT_EQ(key("monkey=1"), "no key");
    EXPECT_EQ(key("key=%"), "no key");
}

TEST(ApiPath, takes_a_hash_if_no_key_is_given)
{
    const auto found = [](std::string_view arguments) {
        return parse_api_path("/ops/", "/ops/zones/z/keys", "/ops/zones/z/keys", false, arguments);
    };
    EXPECT_EQ(found("hash=9f86").key, "9f86");
    EXPECT_EQ(found("hash=9f86").named_by, ApiPath::NamedBy::hash);
    EXPECT_EQ(found("hash=9f86&key=k").key, "k");
    EXPECT_EQ(found("hash=9f86&key=k").named_by, ApiPath::NamedBy::person);
    EXPECT_EQ(found("hash=").view, View::no_key);
    EXPECT_EQ(key_of("/ops/zones/z/keys/k", "/ops/zones/z/keys/k", "hash=9f86"), "k");
}

std::string written(std::string_view text)
{
    JsonText json;
    json.begin_object().text("t", text);
    return json.finish();
}

TEST(JsonText, is_valid_for_any_bytes)
{
    EXPECT_EQ(
        written("a\"b\\c/"),
        R"({"t":"a\"b\\c/"})"
        "\n");
    EXPECT_EQ(
        written({ "\0\x1f\x7f\n", 4 }),
        R"({"t":"\u0000\u001F\u007F\u000A"})"
        "\n");
    EXPECT_EQ(
        written("é€😀"),
        R"({"t":"é€😀"})"
        "\n");
    for (const auto* bad :
         { "\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80" }) {
        const auto text = written(bad);
        EXPECT_EQ(text.find_first_not_of("{\"t:}\\ufffd\n"), std::string::npos) << text;
    }
}

TEST(JsonText, separates_members_by_commas)
{
    JsonText json;
    json.begin_object().begin_array("a").begin_object().number("n", std::int64_t{ -1 });
    json.end_object().begin_object().end_object().end_array();
    json.flag("f", true).null("z").seconds("s", Seconds{ 1.5 }).text("e", or_null(""sv));
    EXPECT_EQ(
        json.finish(),
        R"({"a":[{"n":-1},{}],"f":true,"z":null,"s":1.500000,"e":null})"
        "\n");
}

TEST(PercentEncoding, is_reversed_by_decoding)
{
    std::string all;
    for (int byte = 0; byte < 256; ++byte) {
        all += static_cast<char>(byte);
    }
    EXPECT_EQ(percent_decoded(percent_encoded(all)), all);
    EXPECT_EQ(percent_encoded("a-Z_0.~ /"), "a-Z_0.~%20%2F");
}

}  // namespace
}  // namespace ratelimit::http

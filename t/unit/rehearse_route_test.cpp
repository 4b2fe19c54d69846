// The way of a request to its limits in ratelimit-rehearse: `if`, `set`, `rewrite` and internal
// redirects, as nginx executes them.

#include "rehearse_log.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace ratelimit {
namespace {

/// How many requests met the last limit, and how many it refused.
using Counts = std::pair<std::uint64_t, std::uint64_t>;

/// Requests of one client, which were answered with this status. The zones have one request a day.
Counts counts_of(
    const std::string& key, const std::string& server,
    std::initializer_list<std::string_view> targets, std::string_view status = "200")
{
    RehearsedLog log(
        "ratelimit_zone $arg_k zone=k rate=1r/d algorithm=fixed_window; ratelimit_zone " + key
            + " zone=z rate=1r/d algorithm=fixed_window; server { " + server + " }",
        R"($msec $remote_addr "$request" $status)");
    for (const std::string_view target : targets) {
        const std::string line = R"(1795000000 10.0.0.1 "GET )" + std::string(target)
            + R"( HTTP/1.1" )" + std::string(status);
        log.passes(line);
    }
    return { log.results().back().requests, log.results().back().refused };
}

TEST(RehearseRoute, a_condition_compares_with_a_variable_on_the_right)
{
    const std::string set = "set $wanted on; location / { ratelimit zone=z; ";
    const auto counts = [&](const std::string& condition) {
        return counts_of(
            "all", set + "if (" + condition + ") { return 404; } }",
            { "/?k=on", "/?k=on", "/?k=off", "/?k=$wanted" });
    };
    EXPECT_EQ(counts("$arg_k = $wanted"), Counts(2, 1));
    EXPECT_EQ(counts("$arg_k != $wanted"), Counts(2, 1));
    EXPECT_EQ(counts("$arg_k != o${arg_z}n"), Counts(2, 1));
    EXPECT_EQ(counts("$arg_k = on"), Counts(2, 1));
    EXPECT_EQ(counts("$arg_k = off"), Counts(3, 2));
}

TEST(RehearseRoute, a_condition_compares_with_an_empty_text)
{
    const auto counts = [](const std::string& condition) {
        return counts_of(
            "all", "location / { if " + condition + " { return 404; } ratelimit zone=z; }",
            { "/?k=1", "/?k=1", "/", "/" });
    };
    EXPECT_EQ(counts("($arg_k = \"\")"), Counts(2, 1));
    EXPECT_EQ(counts("( $arg_k != '' )"), Counts(2, 1));
    EXPECT_EQ(counts("( $arg_k = 1 )"), Counts(2, 1));
    EXPECT_EQ(counts("( $arg_k )"), Counts(2, 1));
}

TEST(RehearseRoute, a_rewrite_opens_internal_locations)
{
    const std::string open = "location /e { internal; ratelimit zone=z; }";
    EXPECT_EQ(counts_of("all", "location / { } " + open, { "/x", "/e" }), Counts(0, 0));
    for (const char* server :
         { "location / { rewrite ^ /e last; } ", "rewrite ^/x$ /e; ", "rewrite ^/x$ /e break; " }) {
        EXPECT_EQ(counts_of("all", server + open, { "/x", "/x", "/e" }), Counts(2, 1)) << server;
    }
    EXPECT_EQ(
        counts_of("all", "rewrite ^/x$ http://other.example/e; " + open, { "/x" }), Counts(0, 0));
}

TEST(RehearseRoute, set_changes_the_arguments)
{
    const auto counts = [](const std::string& key, const std::string& location) {
        return counts_of(
            key, "location / { " + location + " ratelimit zone=z; }",
            { "/?x=1&y=1", "/?x=2&y=1", "/?x=3&y=2" });
    };
    EXPECT_EQ(counts("$arg_x", ""), Counts(3, 0));
    EXPECT_EQ(counts("$arg_x", "set $args x=$arg_y;"), Counts(3, 1));
    EXPECT_EQ(counts("$args", "if ($arg_y = 1) { set $args x=$arg_y; }"), Counts(3, 1));
    EXPECT_EQ(counts("x$is_args", "if ($arg_x = 1) { set $args \"\"; }"), Counts(3, 1));
    EXPECT_EQ(counts("$arg_x", "set $args x=$arg_y; rewrite ^ /$arg_x?z=1 break;"), Counts(3, 1));
    EXPECT_EQ(counts("$arg_y", "set $args $args; set $other $args;"), Counts(3, 1));
}

TEST(RehearseRoute, the_rewrites_of_a_server_run_once_if_no_location_matches)
{
    EXPECT_EQ(
        counts_of(
            "$uri", "ratelimit zone=z; rewrite ^/v1/(.*)$ /v1/v2/$1; location /q { }",
            { "/v1/1", "/v1/v2/1" }),
        Counts(2, 0));
    EXPECT_EQ(
        counts_of(
            "all",
            "ratelimit zone=z; if ($uri ~ ^/c) { return 404; } rewrite ^/ab /c; location /q { }",
            { "/ab", "/c" }),
        Counts(1, 0));
}

TEST(RehearseRoute, limits_that_do_not_apply_leave_a_request_to_those_of_a_redirect)
{
    const auto counts = [](const std::string& location, std::string_view status = "404") {
        return counts_of(
            "all",
            "location / { ratelimit zone=k; " + location
                + " } location @other { ratelimit zone=z; proxy_pass http://x; }",
            { "/none", "/none", "/none?k=1" }, status);
    };
    EXPECT_EQ(counts("error_page 404 @other;"), Counts(2, 1));
    EXPECT_EQ(counts("try_files $uri @other;"), Counts(2, 1));
    EXPECT_EQ(counts("try_files $uri =404;"), Counts(0, 0));
    EXPECT_EQ(
        counts("deny all; ratelimit_phase preaccess; error_page 403 @other;", "403"), Counts(2, 1));
}

}  // namespace
}  // namespace ratelimit

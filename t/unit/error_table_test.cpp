// What an error of Redis means for a call, in each topology: without a socket.

#include "redis/error_table.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace ratelimit::redis {
namespace {

struct Case {
    const char* error;
    Fate fate;
    bool leaves;
    bool by_keys;
    Next cluster, sentinel;
};

constexpr Next fails = Next::fail;

/// Errors as Redis 6.2 to 8 and Valkey 8 word them.
const Case cases[] = {
    // Redis has executed nothing, and another server, or this one later, will.
    { "READONLY You can't write against a read only replica.", Fate::refused, true, false, fails,
      Next::wait },
    { "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
      Fate::refused, true, false, fails, Next::wait },
    { "LOADING Redis is loading the dataset in memory", Fate::refused, true, false, fails, fails },
    { "LOADING Valkey is loading the dataset in memory", Fate::refused, true, false, fails, fails },
    { "NOAUTH Authentication required.", Fate::refused, true, false, fails, fails },
    // Redis has executed nothing, and refuses other calls as well.
    { "OOM command not allowed when used memory > 'maxmemory'.", Fate::refused, false, false, fails,
      fails },
    { "OOM command not allowed when used memory > 'maxmemory' script: 1f, on @user_script:1.",
      Fate::refused, false, false, fails, fails },
    { "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
      Fate::refused, false, false, fails, fails },
    { "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist",
      Fate::refused, false, false, fails, fails },
    { "MISCONF Errors writing to the AOF file: No space left on device", Fate::refused, false,
      false, fails, fails },
    { "NOREPLICAS Not enough good replicas to write.", Fate::refused, false, false, fails, fails },
    { "NOSCRIPT No matching script. Please use EVAL.", Fate::refused, false, false, fails, fails },
    // A cluster's.
    { "MOVED 3999 127.0.0.1:6381", Fate::refused, false, false, Next::follow, fails },
    { "ASK 3999 127.0.0.1:6381", Fate::refused, false, false, Next::follow, fails },
    { "CLUSTERDOWN The cluster is down", Fate::refused, false, false, Next::wait, fails },
    { "CLUSTERDOWN Hash slot not served", Fate::refused, false, false, Next::wait, fails },
    { "ERR Script attempted to execute a write command while the cluster is down and readonly "
      "script: 1f, on @user_script:1.",
      Fate::refused, false, false, Next::wait, fails },
    { "ERR Error running script (call to f_1f): @user_script:1: Lua script attempted to execute a "
      "write command while the cluster is down and readonly",
      Fate::refused, false, false, Next::wait, fails },
    { "TRYAGAIN Multiple keys request during rehashing of slot", Fate::refused, false, true,
      Next::one_by_one, fails },
    { "CROSSSLOT Keys in request don't hash to the same slot", Fate::refused, false, true, fails,
      fails },
    // Rights: of the command and of its keys before it is executed, of a script's command not.
    { "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
      Fate::refused, false, false, fails, fails },
    { "NOPERM User limiter has no permissions to run the 'evalsha' command", Fate::refused, false,
      false, fails, fails },
    { "NOPERM User limiter has no permissions to run the 'eval' command", Fate::refused, false,
      false, fails, fails },
    { "NOPERM this user has no permissions to access one of the keys used as arguments",
      Fate::refused, false, true, fails, fails },
    { "NOPERM No permissions to access a key", Fate::refused, false, true, fails, fails },
    { "NOPERM ACL failure in script: User limiter has no permissions to run the 'set' command",
      Fate::failed, false, false, fails, fails },
    { "NOPERM ACL failure in script: No permissions to access the 'k' key", Fate::failed, false,
      false, fails, fails },
    { "NOPERM Something new", Fate::failed, false, false, fails, fails },
};

/// Words that no call of this client should get, or whose meaning is not certain.
const char* const others[] = {
    "ERR Error running script (call to f_1): @user_script:1: oh",
    "ERR unknown command 'EVALSHA'",
    "ERR max number of clients reached",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "EXECABORT Transaction discarded because of previous errors.",
    "NOPROTO unsupported protocol version",
    "BUSYKEY Target key name already exists.",
    "BUSYGROUP Consumer Group name already exists",
    "NOGROUP No such consumer group",
    "UNKILLABLE Sorry the script already executed write commands",
    "NOTBUSY No scripts in execution right now.",
    "NOMASTERLINK Can't SYNC while not connected with my master",
    "NOGOODSLAVE No suitable replica to promote",
    "INPROG Failover already in progress",
    "IOERR error or timeout reading to target instance",
    "UNBLOCKED client unblocked via CLIENT UNBLOCK",
    "REDIRECT 127.0.0.1:6379",
    "DENIED Redis is running in protected mode",
    "READONLYISH is another word",
    "ASKED",
    "",
    " ",
};

TEST(ErrorTable, has_the_fate_and_the_next_step_of_each_error_in_each_topology)
{
    for (const auto& [error, fate, leaves, by_keys, cluster, sentinel] : cases) {
        const ErrorRule& rule = rule_of(error);
        EXPECT_EQ(rule.fate(), fate) << error;
        EXPECT_EQ(rule.leaves, leaves) << error;
        EXPECT_EQ(rule.by_keys, by_keys) << error;
        EXPECT_EQ(rule.loads, rule.word == "NOSCRIPT") << error;
        EXPECT_EQ(rule.cluster, cluster) << error;
        EXPECT_EQ(rule.sentinel, sentinel) << error;
    }
}

TEST(ErrorTable, of_an_unknown_error_the_call_fails_and_may_have_been_executed)
{
    for (const std::string error : others) {
        const ErrorRule& rule = rule_of(error);
        EXPECT_EQ(&rule, &error_rules.back()) << error;
        EXPECT_EQ(rule.fate(), Fate::failed) << error;
        EXPECT_TRUE(maybe_executed(rule.fate())) << error;
        EXPECT_FALSE(rule.leaves || rule.by_keys || rule.loads) << error;
        EXPECT_EQ(std::set({ rule.cluster, rule.sentinel }), std::set{ Next::fail }) << error;
    }
}

TEST(ErrorTable, has_no_row_that_no_case_needs)
{
    std::set<const ErrorRule*> used{ &error_rules.back() };
    for (const Case& each : cases) {
        used.insert(&rule_of(each.error));
    }
    EXPECT_EQ(used.size(), error_rules.size());
}

/// A call is sent again only if Redis has surely executed nothing of it.
TEST(ErrorTable, sends_again_only_what_was_not_executed)
{
    for (const ErrorRule& rule : error_rules) {
        const bool again = rule.leaves || rule.by_keys || rule.loads
            || std::set({ rule.cluster, rule.sentinel }) != std::set{ Next::fail };
        EXPECT_FALSE(again && rule.executed) << rule.word;
    }
}

TEST(ErrorTable, finds_the_error_of_a_command_that_a_script_called)
{
    const std::string wrapped =
        "ERR Error running script (call to f_6b1): @user_script:1: -READONLY You can't write "
        "against a read only replica.";
    EXPECT_TRUE(rule_of(error_text(wrapped)).leaves);
    EXPECT_TRUE(rule_of(error_text("ERR Error running script (call to f_6b1): oh")).executed);
}

}  // namespace
}  // namespace ratelimit::redis

// Servers given by a name whose address may change.

#include "client_fixture.h"

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

/// Two servers on the same port of two addresses, and a name that resolves to the first.
class NamedServerTest : public ClientTest {
protected:
    static constexpr milliseconds valid{ 1000 };

    NamedServerTest() : second_("bind 127.0.0.2\nport " + std::to_string(first_.port()) + "\n")
    {
        loop_.names["redis.test"] = { { "127.0.0.1" }, valid };
        scripts_.add("return ARGV[1]");
        load_scripts(first_);
        load_scripts(second_);
    }

    redis::ClientOptions named_options()
    {
        auto options = options_to(first_.port());
        options.servers[0].endpoint.host_name = "redis.test";
        options.servers[0].endpoint.addresses = { "127.0.0.1" };
        options.server.timeout = 10s;
        return options;
    }
    redis::ClientOptions impatient_options()
    {
        auto options = named_options();
        options.server.timeout = 100ms;
        options.server.breaker_open = 50ms;
        options.server.connect_timeout = 200ms;
        return options;
    }
    /// The first server stops with this call, which times out, until its connection is given up.
    void pause_under(EchoCall& call)
    {
        EXPECT_EQ(ask("before"), "before");
        first_.pause();
        ASSERT_TRUE(finish(call));
        EXPECT_EQ(call.fate, redis::Fate::overdue);
        loop_.run_for(200ms);  // a silent wait: for that
    }
    void move_name() { loop_.names["redis.test"] = { { "127.0.0.2", "127.0.0.9" }, valid }; }
    long second_calls() { return second_.calls("evalsha"); }

    RedisServer first_;
    RedisServer second_;
};

TEST_F(NamedServerTest, IsFollowedToItsNewAddressWhileTheOldServerStillReplies)
{
    start_ready(named_options());
    EXPECT_EQ(ask("before"), "before");
    EXPECT_EQ(second_calls(), 0);
    move_name();

    int calls = 0;
    EXPECT_TRUE(loop_.run_until([&] {
        ++calls;
        EXPECT_EQ(ask("meanwhile"), "meanwhile");  // no call is lost
        return second_calls() > 0;
    }));
    EXPECT_GT(calls, 1);
    EXPECT_EQ(events_.downs, 0);
    EXPECT_EQ(events_.losses, 1) << "the other server has other counts";
    EXPECT_EQ(ask("after"), "after");
}

TEST_F(NamedServerTest, CallsInFlightEndOnTheOldAddress)
{
    start_ready(named_options());
    move_name();
    first_.pause();
    EchoCall call("slow");
    ASSERT_TRUE(client_->send(call));
    loop_.run_for(valid + 200ms);  // a silent wait: for the next lookup
    EXPECT_FALSE(call.ended());
    first_.resume();
    EXPECT_TRUE(loop_.run_until([&] { return call.ended(); }));
    EXPECT_EQ(call.answer, "slow");
    EXPECT_EQ(second_calls(), 0);
    EXPECT_EQ(ask("next"), "next");
    EXPECT_EQ(second_calls(), 1);
}

TEST_F(NamedServerTest, ReportsThatCountsMayBeLostAlsoBehindTheLastAnswerOfTheOldServer)
{
    auto options = named_options();
    options.server.connections = 2;
    start_ready(options);
    EXPECT_EQ(ask("before"), "before");
    first_.pause();
    EchoCall call("slow");
    ASSERT_TRUE(client_->send(call));
    move_name();
    EXPECT_TRUE(loop_.run_until([&] { return events_.losses == 1; })) << "the other connection";
    EXPECT_FALSE(call.ended());
    first_.resume();
    EXPECT_TRUE(loop_.run_until([&] { return events_.losses == 2; }));
    EXPECT_EQ(call.answer, "slow");
}

TEST_F(NamedServerTest, WhatTheOldServerExecutesLateIsNotTakenForAnAnswerOfTheNewOne)
{
    start_ready(impatient_options());
    LateEcho call;
    pause_under(call);
    move_name();
    EXPECT_TRUE(loop_.run_until([&] { return events_.losses == 1; }));
    first_.resume();
    EXPECT_TRUE(loop_.run_until([&] { return call.late.ended(); }));
    EXPECT_EQ(call.late.fate, redis::Fate::lost);
}

TEST_F(NamedServerTest, WhatIsExecutedLateIsTakenAlsoWhenAnotherAddressHasBeenTried)
{
    loop_.names["redis.test"] = { { "127.0.0.1", "127.0.0.2" }, valid };
    start_ready(impatient_options());
    LateEcho call;
    pause_under(call);
    EXPECT_TRUE(loop_.run_until([&] { return second_calls() > 0 || ask("x") == "x"; }));
    first_.resume();
    EXPECT_TRUE(loop_.run_until([&] { return call.late.ended(); }));
    EXPECT_EQ(call.late.answer, "in time");
}

TEST_F(NamedServerTest, WhatIsExecutedLateIsTakenAlsoWhenItsConnectionFollowsAnotherOne)
{
    loop_.names["redis.test"] = { { "127.0.0.1", "127.0.0.2" }, valid };
    auto options = impatient_options();
    options.server.connections = 2;
    options.server.breaker_failures = 2;
    options.server.breaker_open = 1s;
    options.server.connect_timeout = 50ms;
    start_ready(options);
    EXPECT_EQ(ask("before"), "before");
    const auto have_connected_to = [](RedisServer& server) {
        const std::string clients = server.ask({ "CLIENT", "LIST", "TYPE", "normal" });
        return std::ranges::count(clients, '\n') == 3;  // with this one
    };
    EXPECT_TRUE(loop_.run_until([&] { return have_connected_to(first_); }));
    loop_.run_for(100ms);  // a silent wait: until both are ready
    first_.pause();
    LateEcho first;
    LateEcho second;
    ASSERT_TRUE(finish(first));
    loop_.run_for(300ms);  // a silent wait: its connection is given up before the other one
    ASSERT_TRUE(finish(second));
    EXPECT_TRUE(loop_.run_until([&] { return have_connected_to(second_); }));
    first_.resume();
    EXPECT_TRUE(loop_.run_until([&] { return first.late.ended() && second.late.ended(); }));
    EXPECT_EQ(first.late.answer, "in time");
    EXPECT_EQ(second.late.answer, "in time");
}

TEST_F(NamedServerTest, IsFoundAtItsNewAddressWhenTheOldServerIsDead)
{
    start_ready(named_options());
    move_name();
    first_.kill();
    EXPECT_TRUE(loop_.run_until([&] { return ask("after") == "after"; }));
    EXPECT_GT(second_calls(), 0);
    EXPECT_EQ(events_.ups, 2);
}

TEST_F(NamedServerTest, KeepsItsAddressWhenItsNameCannotBeResolved)
{
    loop_.names.clear();
    start_ready(named_options());
    loop_.run_for(valid + 200ms);  // a silent wait: for the next lookup
    EXPECT_EQ(ask("still"), "still");
    EXPECT_EQ(events_.ups, 1);
}

TEST_F(NamedServerTest, KeepsItsAddressWhileItsNameStillHasIt)
{
    start_ready(named_options());
    loop_.names["redis.test"] = { { "127.0.0.2", "127.0.0.1" }, valid };
    loop_.run_for(valid + 200ms);  // a silent wait: for the next lookup
    EXPECT_EQ(ask("still"), "still");
    EXPECT_EQ(second_calls(), 0);
}

TEST_F(NamedServerTest, TriesTheNextAddressAtOnceWhenOneIsDead)
{
    loop_.names.clear();  // as without a resolver
    auto options = named_options();
    options.server.connections = 2;
    options.servers[0].endpoint.host = "127.0.0.8";
    options.servers[0].endpoint.addresses = { "127.0.0.8", "127.0.0.9", "127.0.0.2" };
    start(options);
    EXPECT_EQ(ask("first"), "first");
    EXPECT_EQ(second_calls(), 1);
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(NamedServerTest, UsesOneAddressAlsoWhenItsServerAcceptsNoMoreConnections)
{
    loop_.names["redis.test"] = { { "127.0.0.1", "127.0.0.2" }, valid };
    auto options = named_options();
    options.server.connections = 2;
    start_ready(options);
    const std::unique_ptr<redisContext, decltype(&redisFree)> admin(
        redisConnect("127.0.0.1", first_.port()), redisFree);
    const auto command = [&admin](const std::string& text) {
        auto* reply = static_cast<redisReply*>(redisCommand(admin.get(), text.c_str()));
        std::string answer(reply->str == nullptr ? "" : reply->str, reply->len);
        freeReplyObject(reply);
        return answer;
    };
    const auto clients = [&command] {
        const std::string list = command("CLIENT LIST");
        return std::count(list.begin(), list.end(), '\n');
    };
    ASSERT_TRUE(loop_.run_until([&] { return clients() == 3; }));
    command("CONFIG SET maxclients 1");
    const std::string list = command("CLIENT LIST");  // the oldest is the first
    command("CLIENT KILL ID " + list.substr(3, list.find(' ') - 3));
    EXPECT_EQ(clients(), 2);
    loop_.run_for(300ms);  // a silent wait: for several attempts
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(ask("one"), "one");
    }
    EXPECT_EQ(second_calls(), 0) << "another server has other counts";
}

TEST_F(NamedServerTest, CallsWaitForTheFirstLookupWhenTheInitialAddressIsDead)
{
    auto options = named_options();
    options.servers[0].endpoint.host = "127.0.0.8";
    loop_.look_up_takes = 40ms;  // longer than the refusal of a connection
    start(options);
    loop_.run_for(20ms);  // a silent wait: the connection is refused
    EXPECT_EQ(ask("first"), "first");
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(NamedServerTest, CallsFailWhenTheFirstLookupFindsNothingAndTheInitialAddressIsDead)
{
    auto options = named_options();
    options.servers[0].endpoint.host = "127.0.0.8";
    loop_.names.clear();
    loop_.look_up_takes = 40ms;
    start(options);
    EXPECT_EQ(ask("first"), "no connection");
    EXPECT_EQ(events_.downs, 1);
}

TEST_F(NamedServerTest, CallsFailAtOnceWhenItsServerRejectsUsDuringTheFirstLookup)
{
    first_.ask({ "CONFIG", "SET", "requirepass", "right" });
    auto options = named_options();
    options.server.password = "wrong";
    loop_.look_up_takes = 1h;
    start(options);
    EXPECT_EQ(ask("first"), "no connection");
    EXPECT_EQ(events_.downs, 1);
    EXPECT_EQ(ask("next"), "not sent");
}

TEST_F(NamedServerTest, SwitchesToAnotherAddressWhenItsServerDies)
{
    loop_.names["redis.test"] = { { "127.0.0.1", "127.0.0.2" }, valid };
    start_ready(named_options());
    EXPECT_EQ(ask("before"), "before");
    first_.kill();
    EXPECT_TRUE(loop_.run_until([&] { return ask("after") == "after"; }));
    EXPECT_GT(second_calls(), 0);
}

TEST_F(NamedServerTest, IsReportedDownAlsoWhenTryingItsAddressesOutlastsTheirValidity)
{
    RedisServer silent({}, "127.0.0.1 127.0.0.2 127.0.0.3");
    silent.pause();  // connections succeed, and no reply comes
    const std::vector<std::string> all{ "127.0.0.1", "127.0.0.2", "127.0.0.3" };
    loop_.names["redis.test"] = { all, valid };
    auto options = options_to(silent.port());
    options.servers[0].endpoint.host_name = "redis.test";
    options.servers[0].endpoint.addresses = all;
    options.server.connect_timeout = 600ms;
    start(options);
    EXPECT_TRUE(loop_.run_until([this] { return events_.downs == 1; }, 5s));
}

TEST_F(NamedServerTest, IsReconnectedRarelyWhenAllItsAddressesRefuseCalls)
{
    loop_.names.clear();
    scripts_ = redis::ScriptRegistry();
    RedisServer replica("replicaof 127.0.0.1 1\n", "127.0.0.1 127.0.0.2");
    scripts_.add("return redis.call('SET', KEYS[1], ARGV[1])");
    auto options = options_to(replica.port());
    options.servers[0].endpoint.host_name = "redis.test";
    options.servers[0].endpoint.addresses = { "127.0.0.1", "127.0.0.2" };
    start_ready(options);
    ask_for_a_second();
    EXPECT_GE(replica.calls("evalsha"), 2);
    EXPECT_LE(replica.calls("evalsha"), 30);
}

TEST_F(NamedServerTest, AcceptsNoCallWhenItIsClosedDuringALookup)
{
    auto options = named_options();
    options.servers[0].endpoint.host.clear();
    start(options);
    EchoCall first("first");
    EchoCall second("second");
    bool taken = true;
    first.then = [&] { taken = client_->send(second); };
    ASSERT_TRUE(client_->send(first));
    client_->close();
    EXPECT_TRUE(first.ended());
    EXPECT_FALSE(taken);
}

TEST_F(NamedServerTest, ReportsThatCountsMayBeLostOnlyWhenAConnectionIsLost)
{
    auto options = options_to(first_.port());
    options.server.timeout = 50ms;
    options.server.breaker_failures = 1;
    options.server.breaker_open = 50ms;
    start_ready(options);
    first_.pause();
    EXPECT_EQ(ask("slow"), "no reply in time");
    EXPECT_TRUE(loop_.run_until([&] { return events_.downs == 1; }));
    first_.resume();
    EXPECT_TRUE(loop_.run_until([&] { return ask("after") == "after"; }));
    EXPECT_EQ(events_.losses, 0) << "although the breaker opened and closed";
    first_.ask({ "CLIENT", "KILL", "TYPE", "normal" });
    EXPECT_TRUE(loop_.run_until([&] { return events_.losses == 1; }));
}

TEST_F(NamedServerTest, WithoutAnAddressIsResolvedBeforeTheFirstCall)
{
    auto options = named_options();
    options.servers[0].endpoint.host.clear();
    move_name();
    start(options);
    EchoCall call("early");
    ASSERT_TRUE(finish(call));
    EXPECT_EQ(call.answer, "early");
    EXPECT_EQ(second_calls(), 1);
}

TEST_F(NamedServerTest, WithoutAnAddressOpensTheBreakerWhileItsNameServerIsSilent)
{
    auto options = impatient_options();
    options.servers[0].endpoint.host.clear();
    options.server.breaker_failures = 3;
    options.server.connect_timeout = 20ms;
    options.server.timeout = 10ms;
    loop_.names.clear();
    loop_.look_up_takes = 2s;  // far more than three calls wait, also on a slow machine
    start(options);
    int waited = 0;
    EXPECT_TRUE(loop_.run_until([&] {
        EchoCall call("too early");
        if (!client_->send(call)) {
            return true;
        }
        ++waited;
        EXPECT_TRUE(loop_.run_until([&] { return call.ended(); }));
        return false;
    }));
    EXPECT_EQ(waited, 3);
    EXPECT_EQ(events_.downs, 1);
    EXPECT_EQ(events_.last_reason, "its name is not looked up in time");
    loop_.look_up_takes = 1ms;
    loop_.run_for(2100ms);  // a silent wait: until that look-up has found nothing
    EXPECT_EQ(events_.downs, 1) << "it is reported once";
    loop_.names["redis.test"] = { { "127.0.0.2" }, valid };
    EXPECT_TRUE(loop_.run_until([this] { return events_.ups == 1; }));
    EXPECT_TRUE(loop_.run_until([&] { return ask("after") == "after"; }));
}

TEST_F(NamedServerTest, WithoutAnAddressIsReportedDownWithThatReason)
{
    auto options = named_options();
    options.servers[0].endpoint.host.clear();
    loop_.names.clear();
    start(options);
    EXPECT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    EXPECT_EQ(events_.last_reason, "its address is not known");
    // And up once the name resolves.
    loop_.names["redis.test"] = { { "127.0.0.2" }, valid };
    EXPECT_TRUE(loop_.run_until([this] { return events_.ups == 1; }));
}

}  // namespace
}  // namespace ratelimit

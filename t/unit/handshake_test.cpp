// The first commands on a new connection, and the replies that make it ready: without a socket.

#include "redis/command.h"
#include "redis/handshake.h"
#include "resp_reply.h"

#include <thread>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using redis::Handshake;
using namespace std::chrono_literals;

class HandshakeTest : public testing::Test {
protected:
    /// The first word of each command.
    static std::vector<std::string> words(const std::vector<std::string>& commands)
    {
        std::vector<std::string> all;
        for (const std::string& command : commands) {
            const auto from = command.find('\n', command.find('$')) + 1;
            all.push_back(command.substr(from, command.find('\r', from) - from));
        }
        return all;
    }

    std::string judge(Handshake& handshake, const std::string& resp)
    {
        const auto reply = reply_of(resp);
        return std::string(handshake.judge(*reply).value_or("good"));
    }

    /// What the server's clock shows now.
    auto shown() const { return clock_.at(redis::ServerClock::steady_now()); }

    redis::ServerOptions options_;
    const std::string time_ = "*2\r\n$10\r\n1700000000\r\n$6\r\n000042\r\n";
    redis::ServerClock clock_;
};

TEST_F(HandshakeTest, sends_all_configured_commands_and_none_of_the_scripts)
{
    options_.password = "secret";
    options_.database = 3;
    options_.master_only = true;
    Handshake handshake(options_, true, clock_);
    using Words = std::vector<std::string>;
    EXPECT_EQ(words(handshake.begin()), (Words{ "AUTH", "SELECT", "ROLE", "EVAL", "CLIENT" }));
    for (const std::string& resp : Words{ "+OK\r\n", "+OK\r\n", "*1\r\n$6\r\nmaster\r\n", time_ }) {
        EXPECT_EQ(judge(handshake, resp), "good");
        EXPECT_FALSE(handshake.done());
    }
    EXPECT_EQ(judge(handshake, "+OK\r\n"), "good");
    EXPECT_TRUE(handshake.done());
}

TEST_F(HandshakeTest, always_asks_for_the_time)
{
    Handshake handshake(options_, false, clock_);
    EXPECT_EQ(words(handshake.begin()), (std::vector<std::string>{ "TIME", "CLIENT" }));
    EXPECT_FALSE(shown());
    EXPECT_EQ(judge(handshake, time_), "good");
    const auto first = shown();
    ASSERT_TRUE(first);
    EXPECT_GE(*first, 1'700'000'000s + 42us);
    EXPECT_LT(*first, 1'700'000'060s);
    std::this_thread::sleep_for(2ms);
    EXPECT_GE(*shown(), *first + 2ms);
}

TEST_F(HandshakeTest, refuses_a_server_that_does_not_say_the_time)
{
    Handshake handshake(options_, false, clock_);
    for (const std::string resp :
         { "+OK\r\n", "*1\r\n$1\r\n1\r\n", "*2\r\n$2\r\n-1\r\n$1\r\n1\r\n", "*2\r\n:1\r\n:1\r\n",
           "*2\r\n$1\r\n1\r\n$7\r\n1000000\r\n", "*2\r\n$2\r\n1x\r\n$1\r\n1\r\n",
           "*2\r\n$0\r\n\r\n$1\r\n1\r\n", "*2\r\n$19\r\n9223372036854775807\r\n$1\r\n1\r\n",
           "*2\r\n$-1\r\n$1\r\n1\r\n", "*2\r\n$13\r\n1000000000000\r\n$1\r\n1\r\n" }) {
        handshake.begin();
        EXPECT_EQ(judge(handshake, resp), "TIME returned no time") << resp;
    }
    EXPECT_FALSE(shown());
}

TEST_F(HandshakeTest, fails_at_the_first_error_except_for_the_name)
{
    options_.password = "wrong";
    Handshake handshake(options_, true, clock_);
    handshake.begin();
    EXPECT_EQ(judge(handshake, "-WRONGPASS no\r\n"), "WRONGPASS no");
    handshake.begin();
    EXPECT_EQ(judge(handshake, "+OK\r\n"), "good");
    EXPECT_EQ(judge(handshake, "-NOPERM no script\r\n"), "NOPERM no script");
    handshake.begin();
    EXPECT_EQ(judge(handshake, "+OK\r\n"), "good");
    EXPECT_EQ(judge(handshake, time_), "good");
    EXPECT_EQ(judge(handshake, "-NOPERM no name\r\n"), "good");
    EXPECT_TRUE(handshake.done());
}

TEST_F(HandshakeTest, leaves_its_name_out_once_when_the_server_closes_the_connection)
{
    Handshake handshake(options_, true, clock_);
    using Words = std::vector<std::string>;
    EXPECT_EQ(words(handshake.begin()), (Words{ "EVAL", "CLIENT" }));
    EXPECT_EQ(handshake.awaited(), "EVAL");
    EXPECT_TRUE(handshake.leave_name_out());
    EXPECT_EQ(words(handshake.begin()), (Words{ "EVAL" }));
    EXPECT_EQ(judge(handshake, time_), "good");
    EXPECT_TRUE(handshake.done());
    EXPECT_EQ(words(handshake.begin()), (Words{ "EVAL" })) << "it works without";
    EXPECT_FALSE(handshake.leave_name_out());
    handshake.name_again(true);
    EXPECT_EQ(words(handshake.begin()), (Words{ "EVAL", "CLIENT" }));
    handshake.reset();
    EXPECT_EQ(handshake.awaited(), "");
}

TEST_F(HandshakeTest, a_proxy_gets_a_key_with_the_script_that_returns_the_time)
{
    options_.clock_key = "rl:time";
    Handshake handshake(options_, true, clock_);
    EXPECT_EQ(
        handshake.begin().front(),
        redis::plain_command({ "EVAL", "return redis.call('TIME')", "1", "rl:time" }));
}

TEST_F(HandshakeTest, ends_with_the_reason_of_a_server_that_refuses_the_connection)
{
    Handshake handshake(options_, true, clock_);
    handshake.begin();
    EXPECT_EQ(
        judge(handshake, "-ERR max number of clients reached\r\n"),
        "ERR max number of clients reached");
}

TEST_F(HandshakeTest, refuses_a_server_that_is_no_master)
{
    options_.master_only = true;
    Handshake handshake(options_, true, clock_);
    using Replies = std::initializer_list<std::string>;
    for (const std::string& role : Replies{ "*1\r\n$5\r\nslave\r\n", "*0\r\n", "*1\r\n:1\r\n" }) {
        handshake.begin();
        EXPECT_EQ(judge(handshake, role), "it is not a master");
    }
}

}  // namespace
}  // namespace ratelimit

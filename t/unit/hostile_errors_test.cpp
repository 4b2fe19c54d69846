// Each error word of Redis, as the answer to each command that a client sends, in each topology: in
// the loop of a worker and in that of the master process.

#include "client_fixture.h"
#include "fleet_fixture.h"
#include "mock_server.h"
#include "resp_reply.h"

namespace ratelimit {
namespace {

using redis::Topology;

/// Of Redis 7 and 8, of Sentinel, and of proxies. "MOVED" and "ASK" name the server itself.
constexpr std::array words{
    "",           "ERR",       "WRONGTYPE",  "NOSCRIPT",   "LOADING",     "BUSY",
    "MASTERDOWN", "READONLY",  "MISCONF",    "NOAUTH",     "WRONGPASS",   "NOPERM",
    "OOM",        "EXECABORT", "NOREPLICAS", "BUSYKEY",    "BUSYGROUP",   "NOGROUP",
    "MOVED",      "ASK",       "CROSSSLOT",  "TRYAGAIN",   "CLUSTERDOWN", "UNKILLABLE",
    "NOTBUSY",    "NOPROTO",   "INPROG",     "IOERR",      "NOGOODSLAVE", "NOMASTERLINK",
    "DENIED",     "UNBLOCKED", "NOQUORUM",   "INVALIDOBJ", "REDIRECT",    "ERR invalid password",
};

struct Case {
    Topology topology;
    const char* name;
    std::vector<const char*> commands;
};

class HostileErrors : public ClientTest, public testing::WithParamInterface<Case> {
protected:
    static std::string error_of(const std::string& word, int port)
    {
        const std::string self = " 12539 127.0.0.1:" + std::to_string(port);
        return "-" + word + (word == "MOVED" || word == "ASK" ? self : " no use") + "\r\n";
    }

    /// Replies as Redis does, but for one command.
    void serve_as_usual(MockServer& server, const std::string& refused)
    {
        const std::string port = std::to_string(server.port());
        const std::string subscribed =
            "*3\r\n" + bulk("subscribe") + bulk("+switch-master") + ":1\r\n";
        server.reply_to("SENTINEL", "*2\r\n" + bulk("127.0.0.1") + bulk(port));
        server.reply_to("SUBSCRIBE", subscribed);
        server.reply_to("ROLE", "*3\r\n" + bulk("master") + ":0\r\n*0\r\n");
        server.reply_to("CLUSTER", "*1\r\n" + slots_at(0, 16383, server.port()));
        if (refused == "ASKING") {
            server.reply_to("EVALSHA", error_of("ASK", server.port()));
        }
    }

    redis::ClientOptions options_of(const MockServer& server)
    {
        auto options = options_to(server.port(), GetParam().topology);
        options.server.password = "secret";
        options.sentinel_password = "secret";
        options.server.database = GetParam().topology == Topology::ring ? 1 : 0;
        options.server.connect_timeout = 20ms;
        options.server.timeout = 10ms;
        return options;
    }

    template <class Use>
    void with_each_error(Use&& use)
    {
        for (const std::string command : GetParam().commands) {
            for (const std::string word : words) {
                SCOPED_TRACE(command + ": " + word);
                MockServer server([] { return "$1\r\nx\r\n"; });
                serve_as_usual(server, command);
                server.reply_to(command, error_of(word, server.port()));
                use(server);
            }
        }
    }
};

TEST_P(HostileErrors, end_each_call_of_a_worker_once_and_in_time)
{
    with_each_error([this](MockServer& server) {
        start(options_of(server));
        for (int i = 0; i < 2; ++i) {
            EchoCall call("x");
            if (client_->send(call)) {
                EXPECT_TRUE(loop_.run_until([&] { return call.ended(); }, 5s));
                EXPECT_EQ(call.ends, 1);
            }
        }
        client_->probe();
        loop_.run_for(1ms);
        client_.reset();
    });
}

TEST_P(HostileErrors, end_the_initial_load_of_the_master)
{
    fleet::TestNode node;
    const fleet::FleetKeys keys("rl:");
    with_each_error([&](MockServer& server) {
        const auto reason =
            fleet::load_overrides(node.memory(), options_of(server), keys, fleet::test_clock);
        EXPECT_NE(reason, "") << "it is not loaded: the usual reply to EVALSHA is none of a fleet";
    });
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileErrors,
    testing::Values(
        Case{ Topology::ring, "ring", { "AUTH", "SELECT", "TIME", "CLIENT", "EVALSHA" } },
        Case{ Topology::cluster,
              "cluster",
              { "AUTH", "TIME", "CLIENT", "CLUSTER", "ASKING", "EVALSHA" } },
        Case{ Topology::sentinel,
              "sentinel",
              { "AUTH", "ROLE", "TIME", "CLIENT", "SENTINEL", "SUBSCRIBE", "EVALSHA" } }),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace ratelimit

// Servers that other servers announce by a name, with an address or none.

#include "client_fixture.h"
#include "redis/address_cycle.h"
#include "redis/server.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

/// The owner of one server; ignores its replies.
class LonelyOwner final : public redis::ServerOwner {
public:
    void server_up(redis::Server&) noexcept override { ++ups; }
    void server_down(redis::Server& server, std::string_view) noexcept override
    {
        ++downs;
        tried = server.endpoint().tried;
    }
    void error_reply(redis::Server&, std::string_view) noexcept override {}
    int ups = 0;
    int downs = 0;
    std::string tried;  // the address in the last report
};

/// Two servers on the same port of two addresses, one of which is announced by a name.
class AnnouncedServerTest : public ClientTest {
protected:
    static constexpr milliseconds valid{ 1000 };

    AnnouncedServerTest() : second_("bind 127.0.0.2\nport " + std::to_string(first_.port()) + "\n")
    {
        options_.connect_timeout = 200ms;
    }

    /// The name stands for these addresses from the next look-up on.
    void name_stands_for(std::vector<std::string> addresses)
    {
        loop_.names["redis.test"] = { std::move(addresses), valid };
    }
    /// From the next look-up on, none ends.
    void silence_name_server() { loop_.look_up_takes = 1h; }
    void announce(const std::string& address)
    {
        const auto port = static_cast<std::uint16_t>(first_.port());
        server_ = std::make_unique<redis::Server>(
            loop_, redis::announced_endpoint("redis.test", port, address), options_, scripts_,
            owner_);
        server_->start();
    }
    bool is_up()
    {
        return loop_.run_until([this] { return owner_.ups == 1; });
    }
    bool is_away()
    {
        return loop_.run_until([this] { return owner_.downs == 1; });
    }
    const std::string& address() const { return server_->endpoint().host; }

    RedisServer first_;
    RedisServer second_;
    redis::ServerOptions options_;
    LonelyOwner owner_;
    std::unique_ptr<redis::Server> server_;
};

TEST_F(AnnouncedServerTest, KeepsAnAddressThatWorksAlthoughTheNameHasOneThatDoesNot)
{
    name_stands_for({ "127.0.0.8" });
    announce("127.0.0.1");
    ASSERT_TRUE(is_up());
    loop_.run_for(2 * valid);  // a silent wait: for two look-ups
    EXPECT_EQ(address(), "127.0.0.1");
    EXPECT_EQ(owner_.downs, 0);
}

TEST_F(AnnouncedServerTest, IsFoundByItsNameWhenTheAnnouncedAddressIsSilent)
{
    first_.pause();
    name_stands_for({ "127.0.0.2" });
    announce("127.0.0.1");
    ASSERT_TRUE(is_up());
    EXPECT_EQ(address(), "127.0.0.2");
    server_->announced_at("127.0.0.1");
    loop_.run_for(2 * valid);  // a silent wait: for two look-ups
    EXPECT_EQ(address(), "127.0.0.2") << "it works";
}

TEST_F(AnnouncedServerTest, FollowsItsNameWhileAnotherAddressThanTheAnnouncedOneIsInUse)
{
    loop_.has_resolver = false;
    first_.pause();
    name_stands_for({ "127.0.0.2" });
    announce("127.0.0.1");
    ASSERT_TRUE(is_up());
    EXPECT_EQ(address(), "127.0.0.2");
    first_.resume();
    name_stands_for({ "127.0.0.1" });
    EXPECT_TRUE(loop_.run_until([this] { return address() == "127.0.0.1"; }));
}

TEST_F(AnnouncedServerTest, IsLookedUpHoweverManyConnectionsTrySilentAddresses)
{
    loop_.has_resolver = false;
    options_.connections = 8;
    options_.timeout = 50ms;
    options_.breaker_open = 50ms;
    name_stands_for({ "127.0.0.2" });
    announce("127.0.0.1");
    ASSERT_TRUE(is_up());
    first_.pause();
    EXPECT_TRUE(loop_.run_until([this] {
        server_->probe();
        return address() == "127.0.0.2";
    }));
}

TEST_F(AnnouncedServerTest, KeepsTheAddressOfAnIdleConnectionWhenAnotherOneFails)
{
    options_.connections = 2;
    name_stands_for({ "127.0.0.1", "127.0.0.2" });
    announce("127.0.0.1");
    ASSERT_TRUE(is_up());
    loop_.run_for(2100ms);  // a silent wait: no connection has had a reply for a while
    const std::string clients = first_.ask({ "CLIENT", "LIST", "TYPE", "normal" });
    const auto id = clients.find("id=") + 3;
    first_.ask({ "CLIENT", "KILL", "ID", clients.substr(id, clients.find(' ', id) - id) });
    first_.ask({ "CONFIG", "SET", "requirepass", "unknown" });
    std::uint64_t errors = 0;
    EXPECT_TRUE(
        loop_.run_until([&] { return (errors += server_->take_stats().connection_errors) > 1; }));
    EXPECT_EQ(address(), "127.0.0.1");
}

TEST_F(AnnouncedServerTest, LeavesARefusedAddressWithoutAReportHoweverManyConnectionsItHas)
{
    options_.connections = 8;
    name_stands_for({ "127.0.0.7", "127.0.0.8", "127.0.0.2" });
    announce("");
    ASSERT_TRUE(is_up());
    EXPECT_EQ(owner_.downs, 0);
}

TEST_F(AnnouncedServerTest, LeavesASilentAddressSoonHoweverManyConnectionsItHas)
{
    options_.connections = 128;
    options_.timeout = 50ms;
    options_.breaker_open = 50ms;
    name_stands_for({ "127.0.0.1", "127.0.0.2" });
    announce("");
    ASSERT_TRUE(is_up());
    loop_.run_for(100ms);  // a silent wait: until the other connections are ready
    first_.pause();
    const auto moves = [this] {
        server_->probe();
        return address() == "127.0.0.2";
    };
    EXPECT_TRUE(loop_.run_until(moves, 10s));
    first_.resume();
    const auto are_gone = [this] {
        const std::string clients = first_.ask({ "CLIENT", "LIST", "TYPE", "normal" });
        return std::ranges::count(clients, '\n') == 1;
    };
    EXPECT_TRUE(loop_.run_until(are_gone)) << "no connection stays at the address that was left";
}

TEST_F(AnnouncedServerTest, IsAwayAfterAFewAddressesThatFailedNotAfterAll)
{
    std::vector<std::string> addresses;
    for (int i = 0; i < 50; ++i) {
        addresses.push_back("127.0.1." + std::to_string(i));
    }
    name_stands_for(addresses);
    announce("");
    ASSERT_TRUE(is_away());
    EXPECT_EQ(owner_.tried, addresses[options_.breaker_failures - 1]);
}

TEST_F(AnnouncedServerTest, UsesAnAnnouncedAddressAfterALookupThatFailed)
{
    announce("127.0.0.8");
    EXPECT_TRUE(is_away());
    loop_.run_for(20ms);  // a silent wait: for the failed lookup
    server_->announced_at("127.0.0.1");
    EXPECT_TRUE(is_up());
}

TEST_F(AnnouncedServerTest, UsesAnAnnouncedAddressWhileItsNameHasOneThatDoesNotWork)
{
    name_stands_for({ "127.0.0.7" });
    announce("127.0.0.8");
    EXPECT_TRUE(is_away());
    loop_.run_for(20ms);  // a silent wait: for the lookup
    server_->announced_at("127.0.0.1");
    EXPECT_TRUE(is_up());
}

TEST_F(AnnouncedServerTest, UsesAnAnnouncedAddressWhileItsNameServerIsSilent)
{
    silence_name_server();
    announce("");
    server_->announced_at("127.0.0.1");
    EXPECT_TRUE(is_up());
}

TEST_F(AnnouncedServerTest, MovesToANewAnnouncedAddressAlthoughItsNameStillHasTheOldOne)
{
    name_stands_for({ "127.0.0.1" });
    announce("127.0.0.1");
    ASSERT_TRUE(is_up());
    silence_name_server();
    loop_.run_for(20ms);  // a silent wait: for the lookup
    server_->announced_at("127.0.0.2");
    EXPECT_EQ(address(), "127.0.0.2");
    first_.kill();
    EXPECT_TRUE(loop_.run_until([this] { return server_->ready(); }));
    EXPECT_EQ(owner_.downs, 0);
}

TEST(AddressCycle, ends_a_round_although_each_look_up_finds_other_addresses)
{
    redis::Endpoint endpoint = redis::announced_endpoint("redis.test", 6379, "");
    redis::AddressCycle cycle(endpoint);
    int rounds = 0;
    for (int i = 0; i < 8; ++i) {
        cycle.found({ "10.0.0." + std::to_string(i), "10.0.1." + std::to_string(i) });
        rounds += cycle.failed(endpoint.host) ? 0 : 1;
    }
    EXPECT_EQ(rounds, 4) << "each of two addresses";
}

TEST_F(AnnouncedServerTest, MovesToTheAnnouncedAddressWhenItsNameIsNotResolved)
{
    announce("127.0.0.1");
    ASSERT_TRUE(is_up());
    loop_.run_for(20ms);  // a silent wait: for the failed lookup
    server_->announced_at("127.0.0.2");
    EXPECT_EQ(address(), "127.0.0.2");
}

TEST_F(AnnouncedServerTest, IsReportedWithTheAddressAlsoDuringTheFirstLookup)
{
    silence_name_server();
    announce("127.0.0.8");
    ASSERT_TRUE(is_away());
    EXPECT_EQ(owner_.tried, "127.0.0.8");
}

TEST_F(AnnouncedServerTest, IsReportedWithTheAddressThatWorkedAfterOthersHadFailed)
{
    name_stands_for({ "127.0.0.8", "127.0.0.1" });
    announce("");
    ASSERT_TRUE(is_up());
    first_.pause();
    EXPECT_TRUE(loop_.run_until([this] {
        server_->probe();
        return owner_.downs == 1;
    }));
    EXPECT_EQ(owner_.tried, "127.0.0.1");
}

}  // namespace
}  // namespace ratelimit

// How keys are spread over servers, and how a cluster's map is read: without servers.

#include "redis/cluster_slots.h"
#include "redis/hash_ring.h"
#include "redis/hash_slot.h"
#include "resp_reply.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit::redis {
namespace {

constexpr int keys = 100'000;

std::string key_of(int number)
{
    return "rl:zone:{user-" + std::to_string(number) + "}";
}

std::vector<int> counts_of(const HashRing& ring, std::size_t members)
{
    std::vector<int> counts(members);
    for (int i = 0; i < keys; ++i) {
        ++counts[ring.member_of(key_of(i))];
    }
    return counts;
}

std::vector<HashRing::Member> members_of(int count, int fleet)
{
    std::vector<HashRing::Member> members;
    for (int i = 0; i < count; ++i) {
        members.push_back(
            { "10." + std::to_string(fleet) + ".0." + std::to_string(7 + i) + ":6379", 1 });
    }
    return members;
}

TEST(HashRing, EveryServerHasItsShareWithinATenthForAnyName)
{
    for (const int count : { 2, 3, 5, 10 }) {
        for (int fleet = 0; fleet < 10; ++fleet) {
            const auto members = members_of(count, fleet);
            const double fair = static_cast<double>(keys) / count;
            for (const int share : counts_of(HashRing(members), members.size())) {
                EXPECT_NEAR(share, fair, fair / 10) << count << " servers, fleet " << fleet;
            }
        }
    }
}

TEST(HashRing, AServersShareIsProportionalToItsWeight)
{
    auto members = members_of(3, 1);
    members[0].weight = 3;
    members[2].weight = 2;
    const auto counts = counts_of(HashRing(members), members.size());
    EXPECT_NEAR(counts[0], keys * 3.0 / 6, keys * 3.0 / 60);
    EXPECT_NEAR(counts[1], keys * 1.0 / 6, keys * 1.0 / 60);
    EXPECT_NEAR(counts[2], keys * 2.0 / 6, keys * 2.0 / 60);
}

TEST(HashRing, RemovingAServerMovesOnlyItsOwnKeys)
{
    for (int fleet = 0; fleet < 10; ++fleet) {
        const auto five = members_of(5, fleet);
        auto four = five;
        four.erase(four.begin() + 2);
        const HashRing before(five);
        const HashRing after(four);
        int moved = 0;
        for (int i = 0; i < keys; ++i) {
            const auto& old_name = five[before.member_of(key_of(i))].name;
            const auto& new_name = four[after.member_of(key_of(i))].name;
            moved += old_name == new_name ? 0 : 1;
            ASSERT_TRUE(old_name == new_name || old_name == five[2].name);
        }
        EXPECT_LE(moved, keys * 22 / 100);
        EXPECT_GE(moved, keys * 18 / 100);
    }
}

TEST(HashRing, TheOrderOfTheServersDoesNotMatter)
{
    const auto members = members_of(5, 3);
    const std::vector<HashRing::Member> turned(members.rbegin(), members.rend());
    const HashRing one(members);
    const HashRing other(turned);
    for (int i = 0; i < 1000; ++i) {
        EXPECT_EQ(members[one.member_of(key_of(i))].name, turned[other.member_of(key_of(i))].name);
    }
}

TEST(HashRing, AllZonesOfAKeyAreOnOneServer)
{
    const HashRing ring(members_of(5, 0));
    for (int i = 0; i < 1000; ++i) {
        const auto tag = "{" + std::to_string(i) + "}";
        EXPECT_EQ(ring.member_of("rl:one:" + tag), ring.member_of("rl:another:" + tag));
    }
}

/// A change here would make nodes of different versions use different servers.
TEST(HashRing, TheServerOfAKeyNeverChanges)
{
    const HashRing ring(members_of(5, 0));
    std::string places;
    for (int i = 0; i < 24; ++i) {
        places += std::to_string(ring.member_of(key_of(i)));
    }
    EXPECT_EQ(places, "220143201220433040432410");
}

TEST(HashSlot, EqualsThatOfRedisCluster)
{
    EXPECT_EQ(hash_slot("123456789"), 0x31c3);  // the specification's own example
    EXPECT_EQ(hash_slot("foo"), 12182);
    EXPECT_EQ(hash_slot(""), 0);
    EXPECT_EQ(hash_slot("{user1000}.following"), hash_slot("user1000"));
    EXPECT_EQ(hash_tag("foo{}{bar}"), "foo{}{bar}");
    EXPECT_EQ(hash_tag("foo{{bar}}zap"), "{bar");
    EXPECT_EQ(hash_tag("foo{bar}{zap}"), "bar");
    EXPECT_EQ(hash_tag("foo{bar"), "foo{bar");
}

TEST(Redirection, IsReadFromMovedAndAsk)
{
    const Endpoint source = announced_endpoint("10.0.0.1", 7000);
    const auto moved = read_redirection("MOVED 3999 127.0.0.1:6381", source);
    ASSERT_TRUE(moved);
    EXPECT_FALSE(moved->asking);
    EXPECT_EQ(moved->slot, 3999);
    EXPECT_EQ(moved->target.host, "127.0.0.1");
    EXPECT_EQ(moved->target.port, 6381);

    const auto ask = read_redirection("ASK 0 ::1:6381", source);
    ASSERT_TRUE(ask);
    EXPECT_TRUE(ask->asking);
    EXPECT_EQ(ask->target.host, "::1");
    EXPECT_EQ(ask->target.name, "[::1]:6381");

    // From a node that does not know its own address.
    EXPECT_EQ(read_redirection("MOVED 1 :6381", source)->target.host, "10.0.0.1");
    EXPECT_EQ(read_redirection("MOVED 1 ?:6381", source)->target.host, "10.0.0.1");
    // A name is resolved before it is connected to.
    EXPECT_EQ(read_redirection("MOVED 1 node.example:6381", source)->target.host, "");
    EXPECT_EQ(
        read_redirection("MOVED 1 node.example:6381", source)->target.host_name, "node.example");
}

TEST(Redirection, IsNotReadFromGarbage)
{
    const Endpoint source = announced_endpoint("10.0.0.1", 7000);
    for (const char* text :
         { "", "MOVED", "MOVED ", "MOVED 1", "MOVED 1 ", "MOVED 16384 127.0.0.1:1",
           "MOVED -1 127.0.0.1:1", "MOVED x 127.0.0.1:1", "MOVED 1 127.0.0.1", "MOVED 1 127.0.0.1:",
           "MOVED 1 127.0.0.1:0", "MOVED 1 127.0.0.1:65536", "MOVED 1 127.0.0.1:1x",
           "MOVED 70000 127.0.0.1:1", "ASKING 1 127.0.0.1:1", "READONLY 1 127.0.0.1:1" }) {
        EXPECT_FALSE(read_redirection(text, source)) << text;
    }
}

TEST(ClusterSlots, AMapNamesTheMasterOfEachSlot)
{
    const Endpoint source = announced_endpoint("10.0.0.1", 7000);
    const auto reply = reply_of("*2\r\n"
                                "*4\r\n:0\r\n:5460\r\n"
                                "*4\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n*0\r\n"
                                "*4\r\n$9\r\n127.0.0.2\r\n:7003\r\n$2\r\nid\r\n*0\r\n"
                                "*3\r\n:5461\r\n:16383\r\n*3\r\n$0\r\n\r\n:7001\r\n$2\r\nid\r\n");
    const auto map = read_cluster_slots(*reply, source);
    ASSERT_TRUE(map);
    ASSERT_EQ(map->size(), 2U);
    EXPECT_EQ((*map)[0].first, 0);
    EXPECT_EQ((*map)[0].last, 5460);
    EXPECT_EQ((*map)[0].master.name, "127.0.0.1:7000");
    EXPECT_EQ((*map)[1].last, 16383);
    EXPECT_EQ((*map)[1].master.name, "10.0.0.1:7001");
}

TEST(ClusterSlots, ANodeAnnouncedByNameIsConnectedByItsAddress)
{
    const auto reply =
        reply_of("*1\r\n*3\r\n:0\r\n:1\r\n*4\r\n$12\r\nnode.example\r\n:7000\r\n$2\r\nid\r\n"
                 "*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n");
    const auto map = read_cluster_slots(*reply, announced_endpoint("10.0.0.1", 7000));
    ASSERT_TRUE(map);
    EXPECT_EQ((*map)[0].master.name, "node.example:7000");
    EXPECT_EQ((*map)[0].master.host_name, "node.example");
    EXPECT_EQ((*map)[0].master.host, "127.0.0.1");
}

TEST(ClusterSlots, ANodeWithoutAnAnnouncedNameIsConnectedByItsAddress)
{
    const auto reply = reply_of("*1\r\n*3\r\n:0\r\n:1\r\n*4\r\n$1\r\n?\r\n:7000\r\n$2\r\nid\r\n"
                                "*2\r\n$2\r\nip\r\n$8\r\n10.0.0.9\r\n");
    const auto map = read_cluster_slots(*reply, announced_endpoint("10.0.0.1", 7000));
    ASSERT_TRUE(map);
    EXPECT_EQ((*map)[0].master.name, "10.0.0.9:7000");
}

TEST(ClusterSlots, AReplyThatIsNoMapIsRejected)
{
    for (const char* bytes : { "*0\r\n", ":1\r\n", "$2\r\nOK\r\n", "*1\r\n:0\r\n", "*1\r\n*0\r\n",
                               "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:7000\r\n",
                               "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$1\r\na\r\n:7000\r\n",
                               "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\na\r\n:0\r\n",
                               "*1\r\n*3\r\n:0\r\n:4\r\n*1\r\n$1\r\na\r\n",
                               "*1\r\n*3\r\n$1\r\n0\r\n:4\r\n*2\r\n$1\r\na\r\n:7000\r\n",
                               // Of ranges that overlap, thousands could be large.
                               "*2\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:7000\r\n"
                               "*3\r\n:9\r\n:16383\r\n*2\r\n$1\r\na\r\n:7000\r\n" }) {
        const auto reply = reply_of(bytes);
        EXPECT_FALSE(read_cluster_slots(*reply, announced_endpoint("10.0.0.1", 7000))) << bytes;
    }
}

}  // namespace
}  // namespace ratelimit::redis

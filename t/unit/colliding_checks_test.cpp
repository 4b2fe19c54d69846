// Keys that a client chooses so that they have the same hash, in the tables of a worker.

#include "check/ahead_units.h"
#include "holding_fixture.h"

#include <array>
#include <cstring>
#include <ctime>
#include <functional>

namespace ratelimit {
namespace {

/// Of MurmurHash2, 64 bits, which is std::hash of libstdc++.
class Murmur {
public:
    explicit Murmur(std::size_t length) noexcept : hash_(0xC70F'6907 ^ length * m) {}

    void add(std::uint64_t word) noexcept { hash_ = (hash_ ^ shifted(word * m) * m) * m; }
    /// The word that takes the hash to 0.
    std::uint64_t last_word() const noexcept { return shifted(hash_ * inverse()) * inverse(); }

private:
    static constexpr std::uint64_t m = 0xC6A4'A793'5BD1'E995;

    static std::uint64_t shifted(std::uint64_t bits) noexcept { return bits ^ bits >> 47U; }
    static std::uint64_t inverse() noexcept
    {
        std::uint64_t inverse = m;
        for (int i = 0; i < 6; ++i) {
            inverse *= 2 - m * inverse;
        }
        return inverse;
    }

    std::uint64_t hash_;
};

/// Keys of Redis whose 16 bytes of the client give them the same hash, or not.
std::vector<std::string> keys_of(bool one_hash, std::uint64_t count)
{
    const std::string start = "rl:test:";
    const std::size_t length = start.size() + 2 * sizeof(std::uint64_t) + 1;
    std::vector<std::string> keys;
    for (std::uint64_t i = 0; i < count; ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, start.data(), sizeof(word));
        Murmur hash(length);
        hash.add(word);
        hash.add(i);
        const std::array<std::uint64_t, 2> words{ i, one_hash ? hash.last_word() : 0 };
        keys.push_back(
            start + std::string(reinterpret_cast<const char*>(words.data()), sizeof(words)) + "}");
    }
    return keys;
}

class CollidingChecks : public HoldingTest {
protected:
    static constexpr std::uint64_t count = 15'000;
    static_assert(count < AheadUnits::most);

    /// Seconds of the processor for a check of each key, all of which are in flight at one time.
    double time_of_checks(const std::vector<std::string>& keys)
    {
        Worker& one = add_worker();
        return time_of(keys, [&](std::string_view key) { request_of(one, { key }); });
    }

    /// Seconds of the processor for a request of each key that passes ahead, before one of them is
    /// counted.
    double time_of_reports(const std::vector<std::string>& keys)
    {
        Worker& one = add_worker();
        AheadUnits units(
            one.client, +[]() noexcept { return virtual_now; });
        const struct : LimitOwner {
        } owner;
        RemoteLimit limit;
        limit.owner = &owner;
        limit.policy = { Algorithm::fixed_window, { 1000, 60s }, {}, {}, {} };
        limit.scripts.charge = statement_;
        return time_of(keys, [&](std::string_view key) {
            limit.redis_key = key;
            AheadReport* const report = units.prepare(limit, 1000, units.hash_of(limit.redis_key));
            ASSERT_NE(report, nullptr);
            units.add(*report, 1);
        });
    }

private:
    template <class Use>
    static double time_of(const std::vector<std::string>& keys, Use&& use)
    {
        const std::clock_t begun = std::clock();
        for (const std::string& key : keys) {
            use(key);
        }
        return static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
    }
};

TEST_F(CollidingChecks, keys_that_have_one_hash_on_purpose_cost_hardly_more_than_others)
{
    const auto others = keys_of(false, count);
    const auto colliding = keys_of(true, count);
    const std::hash<std::string_view> hash;
    for (const std::string& key : colliding) {
        ASSERT_EQ(hash(key), hash(colliding.front()));
    }
    EXPECT_LT(time_of_checks(colliding), 5 * time_of_checks(others) + 0.1);
    EXPECT_LT(time_of_reports(colliding), 5 * time_of_reports(others) + 0.1);
}

}  // namespace
}  // namespace ratelimit

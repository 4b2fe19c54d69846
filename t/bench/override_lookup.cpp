// Measures one look-up of a key's override, without nginx and Redis. Each is for another key, in
// random order. Usage: override_lookup KEYS ROUNDS
//
// Prints a line for each round: the nanoseconds of one look-up if there are no overrides, if as
// many other keys have them, and if these keys have them.
#include "store/override_table.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

// nginx's headers come without its functions. This hash is a MurmurHash too.
extern "C" std::uint32_t ngx_murmur_hash2(u_char* data, std::size_t length)
{
    const std::string_view bytes(reinterpret_cast<const char*>(data), length);
    return static_cast<std::uint32_t>(std::hash<std::string_view>{}(bytes));
}

namespace {

using ratelimit::OverrideTable;

constexpr std::size_t table_size = std::size_t{ 32 } << 20U;
constexpr std::uint64_t zone = 1;

[[noreturn]] void fail(const char* why)
{
    std::fprintf(stderr, "override_lookup: %s\n", why);
    std::exit(1);
}

/// nginx aligns shared memory to pages.
struct alignas(4096) Page {
    std::array<std::byte, 4096> bytes;
};

class Table {
public:
    Table() : memory_(table_size / sizeof(Page))
    {
        OverrideTable::init(memory_.data(), table_size, {});
    }

    OverrideTable operator*() { return { memory_.data(), table_size }; }

private:
    std::vector<Page> memory_;
};

std::vector<std::string> make_keys(char first, unsigned count)
{
    std::vector<std::string> keys;
    for (unsigned i = 0; i < count; ++i) {
        const std::string number = std::to_string(i);
        keys.push_back(first + std::string(12 - number.size(), '0') + number);
    }
    return keys;
}

void fill(const OverrideTable& table, const std::vector<std::string>& keys)
{
    OverrideTable::Entry entry;
    entry.value.kind = ratelimit::Override::Kind::unlimited;
    for (const std::string& key : keys) {
        entry.version++;
        if (!table.put(zone, key, entry)) {
            fail("the overrides do not fit");
        }
    }
}

/// Nanoseconds of one call of `is`, which must say `expected` of each key.
template <class Is>
double time_each(const std::vector<std::string>& keys, bool expected, Is&& is)
{
    const auto began = std::chrono::steady_clock::now();
    const auto count = std::count_if(keys.begin(), keys.end(), is);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    if (static_cast<std::size_t>(count) != (expected ? keys.size() : 0)) {
        fail("a wrong answer");
    }
    return took.count() / static_cast<double>(keys.size());
}

/// Without the time in which a key is read, which a request has done before.
double look_up(const OverrideTable& table, const std::vector<std::string>& keys, bool expected)
{
    const double read =
        time_each(keys, true, [](const std::string& key) { return key[12] >= '0'; });
    return time_each(
               keys, expected,
               [&](const std::string& key) { return table.find(zone, key).has_value(); })
        - read;
}

}  // namespace

int main(int argc, char** argv)
{
    const int count = argc == 3 ? std::atoi(argv[1]) : 0;
    if (count < 1) {
        fail("usage: override_lookup KEYS ROUNDS");
    }
    std::vector<std::string> keys = make_keys('k', static_cast<unsigned>(count));
    Table none;
    Table of_others;
    Table of_these;
    fill(*of_others, make_keys('o', static_cast<unsigned>(count)));
    fill(*of_these, keys);
    std::shuffle(keys.begin(), keys.end(), std::mt19937{ 1 });
    for (int round = std::atoi(argv[2]); round > 0; --round) {
        std::printf("%.1f", look_up(*none, keys, false));
        std::printf(" %.1f", look_up(*of_others, keys, false));
        std::printf(" %.1f\n", look_up(*of_these, keys, true));
    }
    return 0;
}

// LruTable on nginx's slab memory, against a model of std::list and std::map.

#include "lru_model.h"
#include "slab_zone.h"
#include "store/lru_table.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit {
namespace {

struct TestEntry : KeyedNode {
    int value;
    void* more;  // another block; null: none

    Name name() const
    {
        std::string key(key_length(), '\0');
        copy_key(key.data());
        return { key, tag() };
    }
    void release(SharedBlocks& blocks) noexcept
    {
        if (more != nullptr) {
            blocks.free(more);
        }
    }
};
using Table = LruTable<TestEntry>;

/// A zone with two tables, each of which evicts its own entries only.
class Tables : public testing::Test {
protected:
    struct Shared : ZoneLock::Head {
        std::array<Table::Shared, 2> tables;
        std::array<std::array<KeyedTree::Root, 64>, 2> roots;
    };

    Tables()
    {
        auto* shared = static_cast<Shared*>(ngx_slab_calloc_locked(zone_.pool(), sizeof(Shared)));
        shared->make_room = &Tables::make_room;
        for (std::size_t i = 0; i < shared->tables.size(); ++i) {
            shared->tables[i].init(shared->roots[i]);
        }
        zone_.pool()->data = static_cast<ZoneLock::Head*>(shared);
        zone_.pool()->log_nomem = 0;
        shared_ = shared;
    }

    Table table(std::size_t index = 0) { return { zone_.pool(), shared_->tables[index] }; }
    ngx_uint_t blocks(std::size_t index = 0) const { return shared_->tables[index].blocks; }

    static bool make_room(ngx_slab_pool_t* pool, const ngx_uint_t& needs_it) noexcept
    {
        auto* shared = static_cast<Shared*>(static_cast<ZoneLock::Head*>(pool->data));
        auto& queue = shared->tables[&needs_it == &shared->tables[0].blocks ? 0 : 1];
        Table table(pool, queue);
        if (const auto* oldest = static_cast<TestEntry*>(queue.used.oldest())) {
            evicted.push_back(oldest->name());
        }
        return table.forget_oldest();
    }

    inline static std::list<Name> evicted;  // and not yet removed from the model
    SlabZone zone_{ std::size_t{ 40 } * 1024 };
    Shared* shared_ = nullptr;
};

/// Random steps on one table; each is applied to the model too.
class RandomTable : public Tables {
protected:
    std::size_t any(std::size_t below) { return random_() % below; }

    /// Keys of all lengths with few different bytes, NULs among them, so that many share a prefix.
    Name any_name()
    {
        const std::size_t length = any(4) == 0 ? any(KeyedNode::key_limit + 1) : any(30);
        std::string key(length, 'k');
        for (int changes = 0; changes < 2 && length > 0; ++changes) {
            key[any(length)] = static_cast<char>(any(3));
        }
        return { key, static_cast<u_char>(any(3) * 100) };
    }
    Name any_known()
    {
        if (model_.entries().empty()) {
            return any_name();
        }
        auto at = model_.entries().lower_bound(any_name());
        return at == model_.entries().end() ? model_.entries().begin()->first : at->first;
    }

    /// Applies the evictions by full memory to the model: always the oldest entry.
    void check_evictions()
    {
        for (; !evicted.empty(); evicted.pop_front()) {
            ASSERT_FALSE(model_.uses().empty());
            ASSERT_EQ(evicted.front(), model_.uses().back());
            model_.remove(evicted.front());
            ++evictions_;
        }
    }

    void insert_or_use(const Name& name)
    {
        TestEntry* entry = table_.find(name.first, name.second);
        ASSERT_EQ(entry == nullptr, model_.find(name) == nullptr);
        if (entry != nullptr) {
            table_.use(*entry);
            model_.use(name);
            return;
        }
        entry = table_.insert(name.first, name.second);
        ASSERT_NE(entry, nullptr);
        ASSERT_NO_FATAL_FAILURE(check_evictions());
        entry->value = ++values_;
        entry->more = nullptr;
        model_.insert(name, values_);
    }

    /// Gives an entry another block, for which the entry itself must not be evicted.
    void extend(const Name& name)
    {
        TestEntry* entry = table_.find(name.first, name.second);
        if (entry == nullptr || entry->more != nullptr) {
            return;
        }
        table_.pin(*entry);
        model_.hold(name);
        entry->more = table_.blocks().allocate();
        ASSERT_NE(entry->more, nullptr);
        ASSERT_NO_FATAL_FAILURE(check_evictions());
        model_.find(name)->more = true;
        table_.use(*entry);
        model_.use(name);
    }

    void forget_key(const std::string& key)
    {
        table_.forget_key(key);
        for (const Name& name : model_.all_of(key)) {
            model_.remove(name);
        }
    }
    void forget_oldest()
    {
        ASSERT_EQ(table_.forget_oldest(), !model_.uses().empty());
        if (!model_.uses().empty()) {
            model_.remove(model_.uses().back());
        }
    }
    void forget_expired()
    {
        const int limit = values_ - static_cast<int>(any(300));
        table_.forget_expired([limit](const TestEntry& entry) { return entry.value < limit; });
        for (int i = 0; i < 2 && !model_.uses().empty(); ++i) {
            const Name oldest = model_.uses().back();
            if (model_.find(oldest)->value >= limit) {
                return;
            }
            model_.remove(oldest);
        }
    }

    void step()
    {
        switch (any(any(200) == 0 ? 7 : 6)) {
        case 0:
        case 1:
        case 2:
            return insert_or_use(any(2) == 0 ? any_known() : any_name());
        case 3:
            return extend(any_known());
        case 4:
            if (any(6) == 0) {
                const Name name = any_known();
                if (TestEntry* entry = table_.find(name.first, name.second)) {
                    table_.remove(*entry);
                    model_.remove(name);
                }
            }
            return;
        case 5:
            return any(8) == 0 ? forget_key(any_known().first)
                : any(2) == 0  ? forget_expired()
                               : insert_or_use(any_name());
        default:
            return forget_oldest();
        }
    }

    void compare()
    {
        ASSERT_EQ(table_.size(), model_.entries().size());
        ASSERT_EQ(blocks(), model_.blocks());
        ASSERT_EQ(shared_->tables[0].used.has_several(), model_.uses().size() > 1);
        for (const auto& [name, expected] : model_.entries()) {
            const TestEntry* entry = table_.find(name.first, name.second);
            ASSERT_NE(entry, nullptr);
            ASSERT_EQ(entry->value, expected.value);
            ASSERT_EQ(entry->name(), name);
            ASSERT_TRUE(table_.may_have(name.first));
        }
        for (int i = 0; i < 20; ++i) {
            const Name name = any_name();
            ASSERT_EQ(
                table_.find(name.first, name.second) != nullptr, model_.find(name) != nullptr);
        }
    }

    std::minstd_rand random_{ 1 };
    Table table_ = table();
    LruModel model_;
    const ngx_uint_t free_pages_ = zone_.free_pages();
    int values_ = 0;
    int evictions_ = 0;
};

TEST_F(RandomTable, finds_evicts_and_drops_the_same_entries_as_a_map_and_a_list)
{
    for (int i = 0; i < 60'000; ++i) {
        ASSERT_NO_FATAL_FAILURE(step()) << "step " << i;
        if (i % 200 == 0) {
            ASSERT_NO_FATAL_FAILURE(compare()) << "step " << i;
        }
    }
    EXPECT_GT(evictions_, 1000) << "memory was full";

    while (table_.forget_oldest()) {
    }
    EXPECT_EQ(table_.size(), 0U);
    EXPECT_EQ(blocks(), 0U);
    EXPECT_EQ(zone_.free_pages(), free_pages_) << "all memory is freed";
    table_.insert("key", 0)->more = nullptr;
    int others = 0;
    for (int i = 0; i < 1000; ++i) {
        others += table_.may_have("other " + std::to_string(i)) ? 1 : 0;
    }
    EXPECT_LT(others, 40) << "no bucket has more than its entries";
}

TEST_F(Tables, keys_with_the_same_hash_are_different_keys)
{
    std::map<std::uint32_t, std::string> keys;
    std::vector<std::pair<std::string, std::string>> pairs;
    std::mt19937 random(1);
    while (pairs.size() < 5) {
        std::string key(8 + random() % 40, 'x');
        std::generate_n(key.begin(), 8, [&] { return static_cast<char>(random()); });
        const auto [other, is_new] = keys.emplace(KeyedTree::hash_of(key), key);
        if (!is_new && other->second != key) {
            pairs.emplace_back(key, other->second);
        }
    }
    Table names = table();
    int value = 0;
    for (const auto& [key, other] : pairs) {
        for (const std::string& name : { key, other }) {
            TestEntry* entry = names.insert(name, 7);
            ASSERT_NE(entry, nullptr);
            entry->value = ++value;
            entry->more = nullptr;
        }
    }
    EXPECT_EQ(names.find(pairs[2].first, 7)->value, 5);
    EXPECT_EQ(names.find(pairs[2].second, 7)->value, 6);
    names.forget_key(pairs[2].first);
    EXPECT_EQ(names.find(pairs[2].first, 7), nullptr);
    EXPECT_EQ(names.find(pairs[2].second, 7)->value, 6);
}

TEST_F(Tables, a_key_has_an_entry_for_each_tag)
{
    Table table = this->table();
    for (const u_char tag : { 0, 1, 255 }) {
        TestEntry* entry = table.insert("key", tag);
        entry->value = tag;
        entry->more = nullptr;
    }
    table.insert("key2", 1)->more = nullptr;
    EXPECT_EQ(table.find("key", 255)->value, 255);
    EXPECT_EQ(table.find("key", 2), nullptr);
    EXPECT_EQ(table.any_of("key"), table.find("key", 0));
    table.forget_key("key");
    EXPECT_EQ(table.size(), 1U);
    EXPECT_EQ(table.any_of("key"), nullptr);
    EXPECT_NE(table.find("key2", 1), nullptr);
    EXPECT_EQ(table.any_of("key2"), table.find("key2", 1));
}

TEST_F(Tables, a_held_entry_is_not_evicted)
{
    Table table = this->table();
    TestEntry* held = table.insert("held", 0);
    held->more = nullptr;
    table.pin(*held);
    for (int i = 0; i < 2000; ++i) {
        TestEntry* entry = table.insert("key " + std::to_string(i), 0);
        ASSERT_NE(entry, nullptr);
        entry->more = nullptr;
    }
    EXPECT_FALSE(evicted.empty());
    EXPECT_EQ(table.find("held", 0), held);
    table.use(*held);
    table.remove(*held);
    evicted.clear();
}

TEST_F(Tables, an_insert_fails_without_a_trace_if_no_entry_may_be_evicted)
{
    Table full = table(0);
    for (int i = 0; evicted.empty(); ++i) {
        full.insert("key " + std::to_string(i), 0)->more = nullptr;
    }
    evicted.clear();
    // The other table has no entry to evict.
    Table empty = table(1);
    EXPECT_EQ(empty.insert("other", 0), nullptr);
    EXPECT_EQ(empty.insert(std::string(100, 'x'), 0), nullptr);
    EXPECT_EQ(empty.size(), 0U);
    EXPECT_EQ(blocks(1), 0U);
    EXPECT_EQ(empty.find("other", 0), nullptr);

    // With one block free there is room for a short key, and not for a long one.
    full.forget_oldest();
    EXPECT_EQ(empty.insert(std::string(100, 'x'), 0), nullptr);
    EXPECT_EQ(blocks(1), 0U);
    TestEntry* entry = empty.insert("other", 0);
    ASSERT_NE(entry, nullptr);
    entry->more = nullptr;
    EXPECT_EQ(blocks(1), 1U);
}

}  // namespace
}  // namespace ratelimit

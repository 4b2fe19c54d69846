// JSON texts of a fleet, read and written with and without memory.

#include "fleet/json_tree.h"

#include "allocation_count.h"
#include "fleet/node_report.h"
#include "fleet/override_text.h"

#include <gtest/gtest.h>

#include <new>

namespace ratelimit::fleet {
namespace {

TEST(JsonTreeTest, has_the_values_of_a_text_in_their_order)
{
    const auto tree = parse_json(R"({"a":[1,{"b":"x"},null],"c":-2.5,"a":true})", 9);
    ASSERT_TRUE(tree);
    EXPECT_EQ(tree->kind, JsonTree::Kind::object);
    ASSERT_EQ(tree->parts.size(), 3U);
    const JsonTree& list = tree->parts.front();
    EXPECT_EQ(list.name, "a");
    ASSERT_EQ(list.kind, JsonTree::Kind::array);
    ASSERT_EQ(list.parts.size(), 3U);
    EXPECT_EQ(list.parts[0].single, 1);
    ASSERT_NE(list.parts[1].find("b"), nullptr);
    EXPECT_EQ(list.parts[1].find("b")->single, "x");
    EXPECT_TRUE(list.parts[2].is_null());
    EXPECT_FALSE(list.is_null());
    EXPECT_EQ(tree->find("c")->single, -2.5);
    EXPECT_EQ(tree->find("a")->single, true) << "the last one of a name";
    EXPECT_EQ(tree->find("b"), nullptr);
}

TEST(JsonTreeTest, leaves_out_the_parts_of_deep_values)
{
    const auto tree = parse_json(R"({"a":{"b":[[1],2],"c":3},"d":[[],4]})", 2);
    ASSERT_TRUE(tree);
    const JsonTree* deep = tree->find("a")->find("b");
    ASSERT_NE(deep, nullptr);
    EXPECT_EQ(deep->kind, JsonTree::Kind::array);
    EXPECT_TRUE(deep->parts.empty());
    EXPECT_EQ(tree->find("a")->find("c")->single, 3);
    ASSERT_EQ(tree->find("d")->parts.size(), 2U);
    EXPECT_EQ(tree->find("d")->parts[1].single, 4);
    EXPECT_EQ(tree->find("d")->parts[1].name, "");
    EXPECT_TRUE(parse_json(std::string(4000, '[') + std::string(4000, ']'), 1));
}

TEST(JsonTreeTest, is_nothing_if_the_text_is_no_json)
{
    for (const char* text : { "", "{", "[1,]", "{\"a\":1}}", "1 2", "nul", "\"\xff\"", "1e999" }) {
        EXPECT_FALSE(parse_json(text, 9)) << text;
    }
    EXPECT_EQ(parse_json("17", 0)->single, 17);
}

/// Calls `use` with memory for one allocation more each time, until it has enough.
template <class Use>
void with_little_memory(Use&& use)
{
    std::size_t failures = 0;
    for (bool ended = false; !ended; ++failures) {
        fail_allocations_after(failures);
        try {
            use();
            ended = true;
        } catch (const std::bad_alloc&) {
        }
        fail_allocations(false);
    }
    EXPECT_GT(failures, 5U);
}

TEST(JsonTreeTest, texts_of_a_fleet_end_no_process_that_has_no_memory)
{
    NodeReport report;
    report.name = "a node whose name needs memory of its own";
    report.zones.resize(3);
    report.zones.front().name = "a zone whose name needs memory of its own";
    report.busiest.resize(9);
    report.busiest.front().id = "a key that needs memory of its own";
    const std::string text = write_report(report);
    with_little_memory([&] { EXPECT_EQ(write_report(report), text); });
    with_little_memory([&] { EXPECT_EQ(parse_report(text)->busiest.size(), 9U); });
    const std::string stored =
        R"({"rate":"5r/d","by":"an operator of a long name","later":[1,{"a":[2]}]})";
    with_little_memory([&] { EXPECT_EQ(parse_stored(stored).rate_text, "5r/d"); });
    const std::string change = R"({"rate":"5r/d","reason":"a reason that needs memory"})";
    with_little_memory([&] {
        OverrideChange read;
        EXPECT_EQ(parse_change(change, read), "");
    });
}

}  // namespace
}  // namespace ratelimit::fleet

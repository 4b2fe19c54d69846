// SortedRecords beside std::stable_sort: in memory, and in runs of a temporary file.

#include "rehearse/log/sorted_records.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

namespace ratelimit::rehearse {
namespace {

constexpr std::size_t lines = 20'000;

struct Line {
    std::int64_t time;
    std::size_t number;
};

/// A log of lines with times by chance, of which many are equal.
class SortedRecordsTest : public testing::Test {
protected:
    SortedRecordsTest()
    {
        const int file = mkstemp(path_.data());
        EXPECT_GE(file, 0);
        close(file);
        std::mt19937 random(7);
        std::ofstream out(path_);
        for (std::size_t i = 0; i < lines; ++i) {
            written_.push_back({ static_cast<std::int64_t>(1'000'000 + random() % 5'000), i });
            // Some lines are longer than a run.
            out << written_.back().time << ' ' << i << ' '
                << std::string(i % 5'000 == 7 ? 9'000 : i % 40, 'x') << "|\n";
        }
    }
    ~SortedRecordsTest() override { unlink(path_.c_str()); }

    /// `stop_at`: the number of lines that are read.
    void expect_sorted(std::size_t run_bytes, std::size_t stop_at = lines)
    {
        std::vector<Line> expected(
            written_.begin(), written_.begin() + static_cast<std::ptrdiff_t>(stop_at));
        std::stable_sort(expected.begin(), expected.end(), [](const Line& left, const Line& right) {
            return left.time < right.time;
        });
        const auto format = text_format("$msec $number $text|", Escape::standard, "the test's");
        format->want(1);
        format->want(2);
        format->begin(false, false);
        LineCounts counts;
        std::vector<std::unique_ptr<LogStream>> streams;
        streams.push_back(std::make_unique<LogStream>(path_, counts));
        std::size_t read = 0;
        SortedRecords records(
            streams, *format, [&] { return read++ < stop_at; }, run_bytes);
        EXPECT_EQ(read, stop_at + 1) << "once before each line, and at the end";
        for (const Line& line : expected) {
            const Record* record = records.next();
            ASSERT_NE(record, nullptr);
            ASSERT_EQ(record->time, line.time * 1'000'000);
            ASSERT_EQ(record->value(0), std::to_string(line.number));
            const std::size_t length = line.number % 5'000 == 7 ? 9'000 : line.number % 40;
            ASSERT_EQ(record->value(1), std::string(length, 'x'));
        }
        EXPECT_EQ(records.next(), nullptr);
        EXPECT_EQ(counts.skipped(), 0U);
    }

private:
    std::string path_ = "/tmp/ratelimit-sorted-XXXXXX";
    std::vector<Line> written_;
};

TEST(RecordTest, WithoutValuesIsStored)
{
    const File file(std::tmpfile());
    Record stored;
    stored.time = 5;
    stored.write(file.get());
    std::rewind(file.get());
    Record read;
    read.add("x");
    ASSERT_TRUE(read.read(file.get()));
    EXPECT_EQ(read.time, 5);
    EXPECT_EQ(read.count(), 0U);
    EXPECT_FALSE(read.read(file.get()));
}

TEST_F(SortedRecordsTest, SortsInMemory)
{
    expect_sorted(std::size_t{ 128 } << 20U);
}

TEST_F(SortedRecordsTest, MergesRunsOfAFile)
{
    expect_sorted(100'000);
}

TEST_F(SortedRecordsTest, MergesManySmallRuns)
{
    expect_sorted(5'000);
}

TEST_F(SortedRecordsTest, StopsWithWhatIsRead)
{
    expect_sorted(100'000, lines / 2);
}

}  // namespace
}  // namespace ratelimit::rehearse

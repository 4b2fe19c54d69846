// A log of a million lines, rehearsed by every algorithm, and counted by simple models that share
// no code with src/limit.

#include "rehearse/run.h"
#include "trace_maker.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <unistd.h>
#include <unordered_map>

namespace ratelimit {
namespace {

using Seconds = std::int64_t;
/// Whether a request at this time passes; it is counted then.
using Passes = std::function<bool(Seconds now)>;

constexpr std::size_t rated_algorithms = 7;  // without concurrency
constexpr std::int64_t quota = 20;
constexpr Seconds window = 60;
constexpr Seconds width = 7;
constexpr std::int64_t burst = 12;

Passes fixed_window()
{
    return [start = Seconds{ -1 }, count = std::int64_t{ 0 }](Seconds now) mutable {
        if (now - now % window != start) {
            start = now - now % window;
            count = 0;
        }
        return count < quota && ++count > 0;
    };
}

Passes sliding_window_counter()
{
    return [counts = std::unordered_map<Seconds, std::int64_t>()](Seconds now) mutable {
        const Seconds id = now / window;
        const std::int64_t weighted = counts[id - 1] * (window - now % window) / window;
        return weighted + counts[id] < quota && ++counts[id] > 0;
    };
}

/// The log is buckets of a second, when times are whole seconds. `counts`: from a bucket's start.
Passes counted_by(Seconds bucket, Seconds counts)
{
    return [bucket, counts, passed = std::deque<Seconds>()](Seconds now) mutable {
        while (!passed.empty() && passed.front() <= now - counts) {
            passed.pop_front();
        }
        if (passed.size() >= quota) {
            return false;
        }
        passed.push_back(now - now % bucket);
        return true;
    };
}

/// Water leaks at the rate; a request is one unit, and passes if the bucket can hold it.
Passes bucket_of(std::int64_t capacity)
{
    return [capacity, water = std::int64_t{ 0 }, last = Seconds{ 0 }](Seconds now) mutable {
        water = std::max<std::int64_t>(0, water - (now - last) * quota);  // in 1/window
        last = now;
        if (water + window > capacity * window) {
            return false;
        }
        water += window;
        return true;
    };
}

Passes model_of(Algorithm algorithm)
{
    switch (algorithm) {
    case Algorithm::fixed_window:
        return fixed_window();
    case Algorithm::sliding_window_counter:
        return sliding_window_counter();
    case Algorithm::sliding_window_log:
        return counted_by(1, window);
    case Algorithm::sliding_window_buckets:
        return counted_by(width, window + width);
    case Algorithm::token_bucket:
        return bucket_of(burst);
    default:
        return bucket_of(1 + burst);
    }
}

struct Expected {
    std::unordered_map<std::string, Passes> keys;
    std::unordered_map<std::string, std::int64_t> refused;
    std::uint64_t refusals = 0;
};

class RehearseMillion : public testing::Test, protected TraceMaker {
protected:
    RehearseMillion() { std::filesystem::create_directory(folder_); }
    ~RehearseMillion() override { std::filesystem::remove_all(folder_); }

    void write_conf()
    {
        std::ofstream conf(folder_ + "/limits.conf");
        std::string limits;
        for (std::size_t i = 0; i < rated_algorithms; ++i) {
            const auto algorithm = static_cast<Algorithm>(i);
            const std::string name(name_of(algorithm));
            conf << "ratelimit_zone $binary_remote_addr zone=" << name
                 << " rate=20r/m algorithm=" << name
                 << (keeps_arrival_time(algorithm) ? " burst=12" : "")
                 << (algorithm == Algorithm::sliding_window_buckets ? " precision=7s" : "")
                 << ";\n";
            limits += "ratelimit zone=" + name + " shadow;\n";
        }
        conf << limits;
    }

    /// A busy key, one of a few hundred, or one of very many that come and go.
    std::string any_address()
    {
        const std::int64_t kind = any(0, 9);
        if (kind < 5) {
            return "203.0.113." + std::to_string(any(1, 30));
        }
        if (kind < 8) {
            return "10.0.1." + std::to_string(any(1, 250));
        }
        return "10." + std::to_string(any(1, 250)) + "." + std::to_string(any(1, 250)) + ".9";
    }

    void add_line(std::ofstream& log, Seconds now, const std::string& address)
    {
        const std::time_t time = now;
        char text[64];
        std::tm parts{};
        std::strftime(text, sizeof(text), "%d/%b/%Y:%H:%M:%S +0000", gmtime_r(&time, &parts));
        log << address << " - - [" << text << "] \"GET /api/items?page=2 HTTP/1.1\" 200 512 \"-\" "
            << "\"Mozilla/5.0 (X11; Linux x86_64)\"\n";
        for (std::size_t i = 0; i < rated_algorithms; ++i) {
            Expected& expected = expected_[i];
            auto [key, fresh] = expected.keys.try_emplace(address);
            if (fresh) {
                key->second = model_of(static_cast<Algorithm>(i));
            }
            if (!key->second(now)) {
                ++expected.refused[address];
                ++expected.refusals;
            }
        }
    }

    std::string folder_ = testing::TempDir() + "rehearse" + std::to_string(getpid());
    std::array<Expected, rated_algorithms> expected_;
};

TEST_F(RehearseMillion, refuses_what_simple_models_refuse)
{
    // Fewer with TRACE_STEPS, under valgrind or a sanitizer.
    const std::int64_t lines = from_environment("TRACE_STEPS", 20'000) * 50;
    write_conf();
    {
        std::ofstream log(folder_ + "/access.log");
        Seconds now = 1'795'000'000;
        for (std::int64_t i = 0; i < lines; ++i) {
            now += any(0, 20) == 0 ? 1 : 0;
            now += any(0, 20'000) == 0 ? any(1, 100) : 0;
            add_line(log, now, any_address());
        }
    }
    rehearse::Settings settings;
    settings.conf = folder_ + "/limits.conf";
    settings.logs = { folder_ + "/access.log" };

    const auto run = rehearse::rehearse(settings, [](const auto&, const auto&) { return true; });

    EXPECT_EQ(run->report.counts.lines, static_cast<std::uint64_t>(lines));
    EXPECT_EQ(run->report.counts.skipped(), 0U);
    ASSERT_EQ(run->report.limits.size(), rated_algorithms);
    for (std::size_t i = 0; i < rated_algorithms; ++i) {
        const rehearse::LimitReport& limit = run->report.limits[i];
        const Expected& expected = expected_[i];
        EXPECT_EQ(limit.result->requests, static_cast<std::uint64_t>(lines)) << limit.zone;
        EXPECT_EQ(limit.result->refused, expected.refusals) << limit.zone;
        EXPECT_GT(limit.result->refused, static_cast<std::uint64_t>(lines) / 100) << limit.zone;
        EXPECT_EQ(limit.keys.keys, expected.keys.size()) << limit.zone;
        EXPECT_EQ(limit.keys.keys_refused, expected.refused.size()) << limit.zone;
        for (const rehearse::BusyKey& busy : limit.busiest) {
            EXPECT_EQ(static_cast<std::int64_t>(busy.count.refused), expected.refused.at(busy.key))
                << limit.zone;
        }
    }
}

}  // namespace
}  // namespace ratelimit

#pragma once

#include "rehearse/route/rehearsed.h"
#include "zone/node_clock.h"

#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

namespace ratelimit {

/// A clock that the test moves. Its monotonic time is an hour ahead.
inline microseconds the_time{ 0 };
inline constexpr NodeClock clock_of_test{
    []() noexcept -> microseconds { return the_time + std::chrono::hours{ 1 }; },
    []() noexcept { return the_time; },
};

/// A rehearsal of lines that a test gives one after another, as ratelimit-rehearse reads them.
class RehearsedLog {
public:
    /// `format`: as in log_format.
    RehearsedLog(std::string_view conf, std::string_view format)
        : format_(rehearse::text_format(format, rehearse::Escape::standard, "the log format")),
          rehearsed_(
              rehearse::read_http_conf(rehearse::parse_conf(conf, "limits.conf")), *format_, "", {})
    {
        format_->begin(false, rehearsed_.site().has_concurrency());
    }

    /// Whether the line is of this format and its request passes.
    bool passes(std::string_view line)
    {
        return format_->read(line, record_)
            && rehearsed_.decide(record_) != rehearse::Rehearsed::Result::refused;
    }

    /// By LimitConf::number.
    const std::vector<rehearse::LimitResult>& results() { return rehearsed_.rehearsal().results(); }

private:
    std::unique_ptr<rehearse::LogFormat> format_;
    rehearse::Rehearsed rehearsed_;
    rehearse::Record record_;
};

}  // namespace ratelimit

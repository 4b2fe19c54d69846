#pragma once

#include "rehearse/count/rehearsal.h"
#include "rehearse/log/log_format.h"
#include "rehearse/route/site.h"
#include "zone/node_clock.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

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
        : conf_(rehearse::read_http_conf(rehearse::parse_conf(conf, "limits.conf"))),
          format_(rehearse::text_format(format, rehearse::Escape::standard, "the log format")),
          variables_(*format_, conf_->definitions),
          site_(*conf_, variables_, ""),
          evidence_(variables_),
          limit_reqs_(conf_->limit_req_zones, conf_->limit_reqs.size(), {}, evidence_),
          values_(rehearse::Escape::standard),
          rehearsal(conf_->zones, conf_->limits, {}, evidence_)
    {
        format_->begin(site_.has_concurrency());
    }

    /// Whether the line is of this format and its request passes.
    bool passes(std::string_view line)
    {
        if (!format_->read(line, record_)) {
            return false;
        }
        values_.begin(record_);
        const rehearse::Plan* plan = site_.find(values_, limit_reqs_).plan;
        return plan == nullptr || rehearsal.decide(*plan, values_, record_.time);
    }

private:
    std::unique_ptr<rehearse::HttpConf> conf_;
    std::unique_ptr<rehearse::LogFormat> format_;
    rehearse::Variables variables_;
    rehearse::Site site_;
    rehearse::Evidence evidence_;
    rehearse::LimitReqs limit_reqs_;
    rehearse::Values values_;
    rehearse::Record record_;

public:
    rehearse::Rehearsal rehearsal;
};

}  // namespace ratelimit

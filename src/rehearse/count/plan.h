#pragma once

#include "limit/policy.h"
#include "rehearse/conf/limit_conf.h"
#include "rehearse/values/values.h"

#include <memory>
#include <optional>
#include <vector>

namespace ratelimit::rehearse {

/// One limit of a location, compiled.
struct PlannedLimit {
    std::size_t zone = 0;    // index of its zone
    std::size_t number = 0;  // LimitConf::number
    Policy policy;           // with the burst of the limit
    bool shadow = false;
    bool variable_rate = false;
    Expression key;
    Expression rate;
    std::optional<Expression> start;  // empty: policy.start_day
    std::optional<Expression> cost;   // empty: fixed_cost
    std::int64_t fixed_cost = 1;
    std::optional<Expression> charge;
    Reserve fixed_reserve;
    std::optional<Expression> reserve;      // empty: fixed_reserve
    std::optional<std::int64_t> undelayed;  // of delay_of
};

/// The limits that apply to a request together.
struct Plan {
    std::vector<PlannedLimit> limits;
    bool fails_closed = false;  // a limit with a malformed rate refuses
};

/// A limit as it is reported.
struct LimitTitle {
    std::size_t zone = 0;
    std::string location;  // where `ratelimit` is written: "/api/", "= /login", "server a", "http"
    bool shadow = false;
    Policy policy;
    bool variable_rate = false;
    std::string start;    // with a variable; empty: policy.start_day
    std::string reserve;  // as written; empty: none
    Place place;
    std::optional<std::size_t> server;  // index; empty: it is written in http
};

}  // namespace ratelimit::rehearse

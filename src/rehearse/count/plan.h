#pragma once

#include "rehearse/conf/limit_conf.h"
#include "rehearse/values/values.h"

#include <optional>
#include <vector>

namespace ratelimit::rehearse {

/// One limit of a location, compiled.
struct PlannedLimit {
    const LimitConf* conf;
    const ZoneConf* zone;
    Expression key;
    // Empty: the value has no variable.
    std::optional<Expression> rate;
    std::optional<Expression> start;
    std::optional<Expression> cost;
    std::optional<Expression> charge;
    std::optional<Expression> reserve;
};

/// The limits that apply to a request together.
struct Plan {
    std::vector<PlannedLimit> limits;
    bool fails_closed = false;  // a limit with a malformed rate refuses
};

}  // namespace ratelimit::rehearse

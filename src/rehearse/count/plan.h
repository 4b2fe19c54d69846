#pragma once

#include "rehearse/conf/limit_conf.h"
#include "rehearse/values/values.h"

#include <algorithm>
#include <optional>
#include <string>
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

    /// Whether a limit applies to the request: one with an empty key or rate does not.
    bool applies(Values& values) const
    {
        std::string own;
        return std::any_of(limits.begin(), limits.end(), [&](const PlannedLimit& one) {
            return !one.key.value(values, own).empty()
                && (!one.rate || !one.rate->value(values, own).empty());
        });
    }
    /// Whether there may be requests to which none applies: an address is never empty, nor a text.
    bool may_not_apply() const
    {
        return std::all_of(limits.begin(), limits.end(), [](const PlannedLimit& one) {
            const std::string& key = one.zone->key;
            return one.rate
                || (key.starts_with('$') && key != "$remote_addr" && key != "$binary_remote_addr"
                    && !key.starts_with("$ratelimit_"));
        });
    }
};

}  // namespace ratelimit::rehearse

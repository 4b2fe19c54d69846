#pragma once

#include "rehearse/values/values.h"

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace ratelimit::rehearse {

/// A variable that is computed from another one.
class Derived : public Variable {
public:
    using Function = std::function<std::string_view(std::string_view source, std::string& own)>;
    Derived(const Variable* source, Function function, bool changes = false)
        : Variable(changes), source_(source), function_(std::move(function))
    {
    }

private:
    std::string_view compute(Values& values, std::string& own) const override
    {
        return function_(source_->value(values), own);
    }

    const Variable* source_;
    Function function_;
};

}  // namespace ratelimit::rehearse

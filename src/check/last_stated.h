#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <string_view>

namespace ratelimit {

using std::chrono::microseconds;

/// The last statement of a kind. Requests that were decided together make the same, one after
/// another.
class LastStated {
public:
    /// Whether it is of the same key and `turn`, and covers units counted at `at` that count until
    /// `ends`. If not, this becomes the last one.
    bool covers(
        std::string_view key, microseconds turn, microseconds at = {},
        microseconds ends = {}) noexcept
    try {
        if (turn_ == turn && key_ == key && at_ <= at && ends <= ends_) {
            return true;
        }
        turn_ = turn;
        at_ = at;
        ends_ = ends;
        key_ = key;
        return false;
    } catch (const std::exception&) {
        return false;  // out of memory: one statement more does no harm
    }

private:
    std::string key_;
    microseconds turn_{ 0 };
    microseconds at_{ 0 };
    microseconds ends_{ 0 };
};

}  // namespace ratelimit

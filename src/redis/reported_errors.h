#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// The kinds of errors (their first words) that have been reported: each is reported once, and
/// again after ten seconds without any error.
class ReportedErrors {
public:
    /// Whether to report this error, which occurred now. False also without memory.
    bool add(std::string_view error, milliseconds now) noexcept
    try {
        if (now - std::exchange(last_, now) >= pause) {
            kinds_.clear();
        }
        const auto kind = error.substr(0, error.find(' '));
        const bool fresh = kinds_.size() < most && std::ranges::find(kinds_, kind) == kinds_.end();
        if (fresh) {
            kinds_.emplace_back(kind);
        }
        return fresh;
    } catch (const std::exception&) {
        return false;
    }

private:
    static constexpr std::size_t most = 16;
    static constexpr milliseconds pause{ 10'000 };

    std::vector<std::string> kinds_;
    milliseconds last_{ 0 };
};

}  // namespace ratelimit::redis

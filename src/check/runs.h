#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ratelimit {

/// The requests of one call of several_script, as it takes them: in runs. All have the same limits;
/// those of a run follow one another and have the same costs. The script answers each run once for
/// each limit, and what each of its requests gets follows from its index.
class Runs {
public:
    /// Each run is work of its own for Redis, which no other call interrupts.
    static constexpr std::size_t most = 100;

    struct Position {
        std::size_t run = 0;
        std::int64_t index = 0;
    };

    /// Begins without requests, for this number of limits.
    void begin(std::size_t limits) noexcept
    {
        limits_ = limits;
        requests_ = 0;
        leased_ = 0;
        numbers_.clear();
    }

    /// Whether a request would be of the last run. `costs`: of each limit, by index.
    template <class Costs>
    bool continues(const Costs& costs) const noexcept
    {
        std::size_t same = 0;
        while (!numbers_.empty() && same < limits_ && numbers_[last() + 1 + same] == costs(same)) {
            ++same;
        }
        return same == limits_;
    }

    template <class Costs>
    bool has_room_for(const Costs& costs) const noexcept
    {
        return count() < most || continues(costs);
    }

    /// Adds a request that there is room for.
    template <class Costs>
    Position add(const Costs& costs)
    {
        if (!continues(costs)) {
            numbers_.push_back(0);
            for (std::size_t limit = 0; limit < limits_; ++limit) {
                numbers_.push_back(costs(limit));
            }
        }
        ++requests_;
        return { count() - 1, numbers_[last()]++ };
    }

    /// Makes the last run longer by requests that have not come yet.
    void lease(std::int64_t requests) noexcept
    {
        leased_ = requests;
        numbers_[last()] += requests;
    }
    std::int64_t leased() const noexcept { return leased_; }
    /// The first of them. After the last request.
    Position first_leased() const noexcept { return { count() - 1, numbers_[last()] - leased_ }; }

    /// Of all requests, without those that have not come.
    unsigned requests() const noexcept { return requests_; }
    /// Whether it is one request, and no other is leased.
    bool single() const noexcept { return count() == 1 && numbers_.front() == 1; }

    /// For each run: its size, and the cost for each limit.
    std::span<const std::int64_t> numbers() const noexcept { return numbers_; }

    /// The script's replies are one for each run and limit, in this order.
    std::size_t replies() const noexcept { return count() * limits_; }
    std::size_t reply_of(std::size_t run, std::size_t limit) const noexcept
    {
        return run * limits_ + limit;
    }

private:
    std::size_t count() const noexcept { return numbers_.size() / (1 + limits_); }
    /// Where the last run begins.
    std::size_t last() const noexcept { return numbers_.size() - 1 - limits_; }

    std::size_t limits_ = 0;
    unsigned requests_ = 0;
    std::int64_t leased_ = 0;
    std::vector<std::int64_t> numbers_;
};

}  // namespace ratelimit

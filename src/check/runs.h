#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ratelimit {

/// The requests of one call of several_script, grouped into runs. All requests have the same
/// limits. The requests of a run follow one another and have the same costs. The script replies
/// once for each run and limit; the verdict on a request follows from its index in the run.
class Runs {
public:
    /// Bounds the time for which one call blocks Redis: the script decides each run separately.
    static constexpr std::size_t most = 100;

    struct Position {
        std::size_t run = 0;
        std::int64_t index = 0;  // in the run
    };

    /// Removes all requests. Each request to come has this number of limits.
    void begin(std::size_t limits) noexcept
    {
        limits_ = limits;
        count_ = 0;
        requests_ = 0;
        leased_ = 0;
        numbers_.clear();
    }

    /// Whether a request with these costs belongs to the last run. `costs(i)`: the cost for a
    /// limit.
    template <class Costs>
    bool continues(const Costs& costs) const noexcept
    {
        std::size_t same = 0;
        while (!numbers_.empty() && same < limits_ && cost(same) == costs(same)) {
            ++same;
        }
        return same == limits_;
    }

    template <class Costs>
    bool has_room_for(const Costs& costs) const noexcept
    {
        return count() < most || continues(costs);
    }

    /// Adds a request. Requires has_room_for(costs).
    template <class Costs>
    Position add(const Costs& costs)
    {
        if (!continues(costs)) {
            numbers_.push_back(0);
            for (std::size_t limit = 0; limit < limits_; ++limit) {
                numbers_.push_back(costs(limit));
            }
            ++count_;
        }
        ++requests_;
        return { count() - 1, numbers_[last()]++ };
    }

    /// Adds requests that have not arrived yet to the last run: the tokens of a lease.
    void lease(std::int64_t requests) noexcept
    {
        leased_ = requests;
        numbers_[last()] += requests;
    }
    std::int64_t leased() const noexcept { return leased_; }
    /// The position of the first leased request. Call after all requests are added.
    Position first_leased() const noexcept { return { count() - 1, numbers_[last()] - leased_ }; }

    /// The number of requests, without the leased ones.
    unsigned requests() const noexcept { return requests_; }
    /// The number of requests of a run, without the leased ones.
    std::int64_t requests_of(std::size_t run) const noexcept
    {
        const std::size_t at = run * (1 + limits_);
        return numbers_[at] - (at == last() ? leased_ : 0);
    }
    std::size_t count() const noexcept { return count_; }
    /// Whether there is one request only, and no lease.
    bool single() const noexcept { return requests_ == 1 && leased_ == 0; }

    /// The cost of the requests of the last run.
    std::int64_t cost(std::size_t limit) const noexcept { return numbers_[last() + 1 + limit]; }

    std::int64_t cost(std::size_t run, std::size_t limit) const noexcept
    {
        return numbers_[run * (1 + limits_) + 1 + limit];
    }

    /// For each run: the number of its requests, and their cost for each limit.
    std::span<const std::int64_t> numbers() const noexcept { return numbers_; }

    /// The same for a call that is sent again: no tokens are leased, and its age follows, in
    /// microseconds.
    std::vector<std::int64_t> numbers_again(std::chrono::microseconds age) const
    {
        std::vector<std::int64_t> again = numbers_;
        again[last()] -= leased_;
        again.push_back(age.count());
        return again;
    }

    /// The script returns one reply for each run and limit, ordered by run.
    std::size_t replies() const noexcept { return count() * limits_; }
    std::size_t reply_of(std::size_t run, std::size_t limit) const noexcept
    {
        return run * limits_ + limit;
    }
    /// How many requests such a reply is about, with the leased ones.
    std::int64_t asked_of(std::size_t reply) const noexcept
    {
        return numbers_[reply / limits_ * (1 + limits_)];
    }

private:
    /// Index of the last run in numbers_.
    std::size_t last() const noexcept { return numbers_.size() - 1 - limits_; }

    std::size_t limits_ = 0;
    std::size_t count_ = 0;
    unsigned requests_ = 0;
    std::int64_t leased_ = 0;
    std::vector<std::int64_t> numbers_;
};

}  // namespace ratelimit

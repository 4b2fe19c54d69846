#pragma once

#include "rehearse/count/decider.h"
#include "rehearse/count/refused_keys.h"

#include <cstdint>
#include <span>
#include <vector>

namespace ratelimit::rehearse {

/// A way on which a request may have gone.
struct Course {
    std::vector<AskedLimit> asked;  // without the keys' texts
    bool fails_closed = false;
    bool met = false;      // a limit of nginx
    bool refused = false;  // by it

    friend bool operator==(const Course&, const Course&) = default;
};

/// How many requests the limits refuse at least and at most, where the log does not tell on which
/// way some of them went.
///
/// Two deciders follow all requests. Of each key, the state of `least_` is never above the state
/// that the key has if the ways are the true ones, and that of `most_` never below it; "above" is:
/// a later check grants no more. It begins so, as both are the true state, and a request keeps it:
/// - If only `least_` grants a request, the truth is not known; if both do, or none, it is.
/// - `least_` counts what surely passed, on the only way, and `most_` whatever may have passed. An
///   equal cost keeps two states in their order.
/// - Where `most_` does not grant what may have passed, it counts the cost beyond the limit. The
///   true state is then at its limit or below, so that nothing above that has to be counted.
/// - A block begins in `least_` if a limit surely refuses and no block can be in force, and in
///   `most_` if it may refuse and none surely is.
/// Of charge= below the cost, src/limit returns less than a microsecond too little or too much.
class Bounds {
public:
    /// Goes on from here: until now, the way of each request was known.
    Bounds(const Decider& decider, const Outcome& outcome)
        : least_(decider),
          most_(decider),
          requests_(outcome.requests),
          least_refused_(outcome.refused),
          most_refused_(outcome.refused)
    {
    }

    /// The next request: the ways that it may have gone, at least one. Times as of
    /// Decider::decide.
    void decide(std::span<const Course> courses, std::int64_t now, std::int64_t end);

    /// Requests that may have met a limit.
    std::uint64_t requests() const noexcept { return requests_; }
    std::uint64_t least_refused() const noexcept { return least_refused_; }
    std::uint64_t most_refused() const noexcept { return most_refused_; }

private:
    struct Answer {
        bool may_pass;
        bool may_be_refused;
    };

    Answer decide(const Course& course, bool sure, std::int64_t now, std::int64_t end);

    Decider least_;
    Decider most_;
    std::uint64_t requests_;
    std::uint64_t least_refused_;
    std::uint64_t most_refused_;
};

}  // namespace ratelimit::rehearse

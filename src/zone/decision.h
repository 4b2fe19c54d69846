#pragma once

#include "check/check.h"
#include "limit/fail_mode.h"
#include "zone/applied_limit.h"
#include "zone/node_clock.h"
#include "zone/outcome.h"

#include <optional>
#include <span>

namespace ratelimit {

/// The decision on one request by all its limits. Each limit is decided by the first of these that
/// can: an override that blocks, a lease, a remembered refusal, what Redis last answered (ahead=,
/// if that decides all that are left), Redis, and this node's memory (for zones without Redis, or
/// by fail mode `local`). A limit that none of them decides is ignored, or refuses the request if
/// the fail mode is `closed`. A request is counted in all its limits or in none: if one refuses,
/// what the others counted is refunded.
class Decision final : public Check::Owner {
public:
    struct Rules {
        FailMode fail_mode = FailMode::open;
        bool dry_run = false;
        /// The request takes nothing, and wants to know what Redis has now.
        bool peeks = false;
    };

    class Owner {
    public:
        virtual ~Owner() = default;
        /// The decision is made. Never called from inside start.
        virtual void decided() noexcept = 0;
    };

    /// `limits`: in the order of the configuration. `sent`: scratch space of the same size. Both
    /// must outlive this object.
    Decision(
        std::span<AppliedLimit> limits, std::span<RemoteLimit*> sent, Rules rules,
        const NodeClock& clock, Owner& owner) noexcept
        : limits_(limits), sent_(sent), rules_(rules), clock_(clock), owner_(owner)
    {
    }

    /// The request has ended. What it holds in Redis is released with its limits.
    ~Decision() override;
    Decision(const Decision&) = delete;
    Decision& operator=(const Decision&) = delete;

    /// Starts to decide. True: a check is in flight, and the owner will be notified. False: the
    /// decision is made.
    bool start() noexcept;

    Result result() const noexcept { return result_; }
    /// Whether limits decided. If not, outcome, shown and decided_by must not be called.
    bool has_outcome() const noexcept { return has_outcome_; }
    const Outcome& outcome() const noexcept { return outcome_; }
    /// The limit that the headers and variables with a single value show.
    const AppliedLimit& shown() const noexcept { return limits_[outcome_.least_left]; }
    const AppliedLimit& decided_by() const noexcept { return limits_[outcome_.decided_by]; }

    std::span<const AppliedLimit> limits() const noexcept { return limits_; }
    /// Whether the limit is enforced and could not be decided. After a refusal from memory, the
    /// limits that were therefore not sent to Redis do not count as undecided.
    bool undecided(const AppliedLimit& limit) const noexcept;
    bool dry_run() const noexcept { return rules_.dry_run; }
    /// Whether neither the limits nor the fail mode refuse the request.
    bool passed() const noexcept { return !outcome_.refused && result_ != Result::failed_closed; }
    /// Whether the request is counted in this limit.
    bool counted(const AppliedLimit& limit) const noexcept
    {
        return limit.decided && limit.state.granted && passed();
    }
    /// Changes the counted cost in a limit to the real cost of the request, as soon as its reply
    /// has come. Call once, for a request that passed.
    void settle(const AppliedLimit& limit, std::int64_t cost) const noexcept;
    std::size_t checks_sent() const noexcept { return check_ ? sent_.size() : 0; }

    void checked() noexcept override;

private:
    void decide_by_overrides() noexcept;
    bool ask_redis() noexcept;
    void decide_by_node_state() noexcept;
    std::int64_t select_for_redis() noexcept;
    void finish() noexcept;
    void take_replies() noexcept;
    bool is_for_memory(const AppliedLimit& limit) const noexcept;
    void decide_by_memory() noexcept;
    bool any_undecided() const noexcept;
    bool closes() const noexcept;
    bool fails_closed() const noexcept;
    void resolve() noexcept;
    bool refund() noexcept;
    void pass() noexcept;
    void forget_refusals() noexcept;
    bool begin_blocks() noexcept;

    std::span<AppliedLimit> limits_;
    std::span<RemoteLimit*> sent_;  // the limits sent to Redis, in any order
    const Rules rules_;
    const NodeClock& clock_;
    Owner& owner_;
    std::optional<Check> check_;
    Result result_ = Result::none;
    Outcome outcome_;
    bool has_outcome_ = false;
    bool refused_by_node_ =
        false;  // a remembered refusal or an override of an enforced limit decides
};

}  // namespace ratelimit

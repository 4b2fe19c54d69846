#pragma once

#include "check/check.h"
#include "limit/fail_mode.h"
#include "zone/applied_limit.h"
#include "zone/node_clock.h"
#include "zone/outcome.h"

#include <optional>
#include <span>

namespace ratelimit {

/// The decision of all limits of one request. Each limit is decided by the first of these that can:
/// a lease, a remembered refusal, Redis, and, for zones without Redis or by fail mode, this node's
/// memory. A limit that none of them decides is left out, or refuses the request by fail mode. A
/// request is counted in all its limits or in none: what some took is refunded when another
/// refuses.
class Decision final : public Check::Owner {
public:
    struct Rules {
        FailMode fail_mode = FailMode::open;
        bool dry_run = false;
    };

    class Owner {
    public:
        virtual ~Owner() = default;
        /// The decision is made. Never from inside start.
        virtual void decided() noexcept = 0;
    };

    /// `limits`: in the order of the configuration. `sent`: room for as many. Both must live as
    /// long as this.
    Decision(
        std::span<AppliedLimit> limits, std::span<RemoteLimit*> sent, Rules rules,
        const NodeClock& clock, Owner& owner) noexcept
        : limits_(limits), sent_(sent), rules_(rules), clock_(clock), owner_(owner)
    {
    }

    /// Decides. True: a check is in flight, and the owner is called when the decision is made; else
    /// it is made now.
    bool start();

    Result result() const noexcept { return result_; }
    /// Whether limits decided; outcome, speaking and decided_by only if so.
    bool has_outcome() const noexcept
    {
        return result_ != Result::none && result_ != Result::failed_closed && any_decided();
    }
    const Outcome& outcome() const noexcept { return outcome_; }
    const AppliedLimit& speaking() const noexcept { return limits_[outcome_.least_left]; }
    const AppliedLimit& decided_by() const noexcept { return limits_[outcome_.decided_by]; }

    std::span<const AppliedLimit> limits() const noexcept { return limits_; }
    /// Whether it is an enforced limit that could not be decided.
    bool undecided(const AppliedLimit& limit) const noexcept;
    bool dry_run() const noexcept { return rules_.dry_run; }
    std::size_t checks_sent() const noexcept { return check_ ? sent_.size() : 0; }

    void checked() noexcept override;

private:
    bool ask_redis();
    void decide_by_node_state() noexcept;
    std::int64_t select_for_redis() noexcept;
    void finish() noexcept;
    void take_replies() noexcept;
    bool is_for_memory(const AppliedLimit& limit) const noexcept;
    void decide_by_memory() noexcept;
    bool any_decided() const noexcept;
    bool any_undecided() const noexcept;
    bool closes() const noexcept;
    bool fails_closed() const noexcept;
    void resolve() noexcept;
    void refund() noexcept;
    void forget_refusals() noexcept;

    std::span<AppliedLimit> limits_;
    std::span<RemoteLimit*> sent_;  // to Redis, in any order
    const Rules rules_;
    const NodeClock& clock_;
    Owner& owner_;
    std::optional<Check> check_;
    Result result_ = Result::none;
    Outcome outcome_;
    bool refused_by_cache_ = false;  // by an enforced limit: the others need no decision
};

}  // namespace ratelimit

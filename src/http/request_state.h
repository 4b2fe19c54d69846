#pragma once

#include "check/split_check.h"
#include "http/conf.h"
#include "store/token_leases.h"
#include "zone/decision_set.h"

#include <optional>
#include <span>

namespace ratelimit::http {

/// $ratelimit_status.
enum class Result : std::uint8_t {
    none,
    passed,
    delayed,
    rejected,
    delayed_dry_run,
    rejected_dry_run,
    failed_open,
    failed_closed,
};

/// The one decision of a main request. It lives in the request's pool, and is found again after an
/// internal redirect, which clears nginx's module contexts. While a check is in flight the request
/// is blocked, so the pool outlives the check.
class RequestState final : public SplitCheck::Owner {
public:
    enum class Stage : std::uint8_t {
        waiting,   // the check is on its way, the request parked
        answered,  // the answer is there, the request not yet resumed
        delaying,  // passed, and parked until its turn
        done,
        unlimited,  // every key was empty: another location's limits may still apply
    };

    /// What one limit of the request is, by index as in decided.
    struct Limit {
        ZoneConf* zone;
        std::string_view key;
        std::int64_t cost;
        std::uint64_t policy;                       // Zone::policy_hash
        bool known = false;                         // its state in decided is
        std::optional<TokenLeases::Source> leased;  // its cost was taken of this node's lease
        std::int64_t ahead = 0;                     // for so many requests more it is worth asking
    };

    static RequestState* find(ngx_http_request_t* r) noexcept;

    /// Makes the request's state with room for `limits`. Null: out of memory.
    static RequestState* make(ngx_http_request_t* r, std::size_t limits);

    RequestState(ngx_http_request_t* r, const LocationConf& conf) noexcept : request(r), conf(conf)
    {
    }

    using Decided = void (*)(RequestState& state) noexcept;

    /// Sends the check to Redis. False: nothing was sent, and `decide` can be called at once; else
    /// `when_decided` is called once, when the decision is made, and never from inside `ask`.
    bool ask(Decided when_decided);

    /// Takes the answers apart: outcome, result. Limits that have none are decided by the fail
    /// mode, or in this node's memory.
    void decide() noexcept;

    void checked() noexcept override;
    void taken_ahead(
        std::span<const RemoteCheck> answered, std::span<const BatchAnswer> answers,
        std::int64_t spent) noexcept override;

    /// A limit of this zone, which enforces, cannot be decided.
    void note_undecided(ZoneConf& zone) noexcept;

    bool has_outcome() const noexcept
    {
        return result != Result::none && result != Result::failed_closed && !decided.empty();
    }
    const DecidedLimit& speaking() const noexcept { return decided[outcome.least_left]; }

    ngx_http_request_t* const request;
    const LocationConf& conf;  // of the location that decided
    Stage stage = Stage::done;
    Result result = Result::none;
    std::span<Limit> limits;
    std::span<DecidedLimit> decided;
    std::span<RemoteCheck> checks;  // what Redis is asked, in any order
    Outcome outcome;
    ngx_msec_t started = ngx_current_msec;
    ngx_msec_t waited = 0;                 // for the decision
    std::span<ZoneConf*> undecided_zones;  // whose limits are left out
    bool undecided = false;     // an enforced limit is left out: its rate or its state is not known
    bool refused_here = false;  // so what is not known need not be

private:
    void take_answers() noexcept;
    bool all_known() const noexcept;
    bool decided_here(std::size_t limit) const noexcept;
    bool fails_closed() const noexcept;
    bool decide_here() noexcept;
    void leave_out_unknown() noexcept;
    void settle() noexcept;
    void give_back() noexcept;
    void forget_refusals() noexcept;

    std::optional<SplitCheck> check_;
    Decided decided_ = nullptr;
};

}  // namespace ratelimit::http

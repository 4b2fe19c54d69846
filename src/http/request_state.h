#pragma once

#include "check/script_call.h"
#include "http/conf.h"
#include "zone/decision_set.h"

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

/// The one decision of a main request: it lives in the request's pool, so a client that leaves
/// takes its check along, and is found again after an internal redirect, which clears nginx's
/// module contexts.
class RequestState final : public redis::Call {
public:
    enum class Stage : std::uint8_t {
        waiting,   // the check is on its way, the request parked
        answered,  // the answer is there, the request not yet resumed
        delaying,  // passed, and parked until its turn
        done,
        unlimited,  // every key was empty: another location's limits may still apply
    };

    /// What one limit of the request is, by index as in checks and decided.
    struct Limit {
        ZoneConf* zone;
        std::string_view key;
    };

    static RequestState* find(ngx_http_request_t* r) noexcept;

    /// Makes the request's state with room for `limits`. Null: out of memory.
    static RequestState* make(ngx_http_request_t* r, std::size_t limits);

    RequestState(ngx_http_request_t* r, const LocationConf& conf) noexcept : request(r), conf(conf)
    {
    }

    redis::ScriptId script() const noexcept override { return script_id; }
    redis::ArgumentCount argument_count() const noexcept override;
    void write(redis::ScriptArguments& arguments) const override;
    std::string_view routing_key() const noexcept override { return checks.front().key; }
    void on_reply(const redisReply& reply) noexcept override;
    void on_failure(redis::Failure failure) noexcept override;

    /// Takes the answer apart: outcome, result. Called once, with all states known.
    void settle() noexcept;
    /// No decision can be had.
    void settle_failed() noexcept;

    bool has_outcome() const noexcept
    {
        return result != Result::none && result != Result::failed_open
            && result != Result::failed_closed;
    }
    const DecidedLimit& speaking() const noexcept { return decided[outcome.least_left]; }

    ngx_http_request_t* const request;
    const LocationConf& conf;  // of the location that decided
    Stage stage = Stage::done;
    Result result = Result::none;
    redis::ScriptId script_id{};
    std::span<Limit> limits;
    std::span<LimitCheck> checks;
    std::span<DecidedLimit> decided;
    Outcome outcome;
    ngx_msec_t started = ngx_current_msec;
    ngx_msec_t waited = 0;   // for the decision
    bool undecided = false;  // an enforced limit was left out: its rate could not be read

private:
    void answered() noexcept;
    bool fails_closed() const noexcept;
};

}  // namespace ratelimit::http

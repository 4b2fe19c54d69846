#pragma once

#include "http/request_state.h"

namespace ratelimit::http {

/// What this node knows of a request's limits without asking Redis: keys that are refused (the
/// denial cache), and what was taken ahead (leases).

/// Settles the limits whose refusal is remembered, and takes them out of what is to be asked. True:
/// an enforced one refuses, and nothing need be asked.
bool refused_by_cache(RequestState& state) noexcept;

/// Settles all that would be asked, if there are leases for all of it. If not, `ahead`: for how
/// many requests more to ask.
bool taken_from_leases(RequestState& state, std::int64_t& ahead) noexcept;

/// What Redis has refused.
void remember_refusal(const RequestState& state, const RemoteCheck& check) noexcept;

/// What was counted ahead: as SplitCheck::Owner::taken_ahead.
void keep_leases(
    const RequestState& state, std::span<const RemoteCheck> checks,
    std::span<const BatchAnswer> answers, std::int64_t spent) noexcept;

/// Gives leases back what the request took of them.
void return_leases(RequestState& state) noexcept;

/// After some of what was asked is given back in Redis: others may pass sooner than they were told.
void forget_refusals(const RequestState& state) noexcept;

}  // namespace ratelimit::http

#pragma once

#include "http/request_state.h"

namespace ratelimit::http {

/// What this node knows of a request's limits without asking Redis: keys that are refused (the
/// denial cache), and what was taken ahead (leases).

/// Settles the limits whose refusal is remembered, and takes them out of what is to be asked. True:
/// an enforced one refuses, and nothing need be asked.
bool refused_by_cache(RequestState& state) noexcept;

/// Settles the limits that this node has leases for, and takes them out of what is to be asked.
void take_from_leases(RequestState& state) noexcept;

/// For how many requests more to ask: as many as all that is asked is worth asking ahead for.
std::int64_t wanted_ahead(const RequestState& state) noexcept;

/// What Redis has refused.
void remember_refusal(const RequestState& state, const RemoteCheck& check) noexcept;

/// What was counted ahead: as SplitCheck::Owner::taken_ahead.
void keep_leases(
    const RequestState& state, std::span<const RemoteCheck> checks,
    std::span<const BatchAnswer> answers, std::int64_t spent) noexcept;

/// Gives leases back what the request took of them, and puts it back into its states.
void return_leases(RequestState& state) noexcept;

/// After what this limit took is given back in Redis: others may pass sooner than was remembered.
/// And after a request that passed: what it left to those of a larger cost or another policy, whose
/// refusal is remembered, is less than was remembered. Only where a zone can have such requests,
/// which are remembered briefly for the same reason.
void forget_refusals(const RequestState& state, const RemoteCheck& check) noexcept;

}  // namespace ratelimit::http

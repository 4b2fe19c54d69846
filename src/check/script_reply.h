#pragma once

#include "check/runs.h"
#include "limit/run_reply.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

struct redisReply;

namespace ratelimit {

/// The reply to one run of requests in one key, in one form for both kinds of script.
struct KeyReply : RunReply {
    bool ignored = false;           // the statement of a concurrency limit (lua/concurrency.lua)
    std::int64_t place = -1;        // of the holder's entry in such a key; -1: not known
    microseconds server_time{ 0 };  // since the epoch; 0: no limit needed Redis's clock
};

/// The part of sequence_script's reply for one key: signed 64-bit big-endian integers: verdict (see
/// lua/sequence.lua), remaining, reset (microseconds), retry (microseconds; 0: granted, -1: never,
/// -2: ignored), the reset before (microseconds) and Redis's time. Of a request of several keys,
/// `taken` is what this key alone admits. False: the part is malformed, and `reply` must not be
/// used.
bool read_sequence_reply(std::string_view part, KeyReply& reply) noexcept;

/// The parts of one request, by limit. False: one of them is malformed, or there is no memory.
bool read_sequence_parts(
    std::string_view parts, std::size_t limits, std::vector<KeyReply>& replies) noexcept;

/// The same, as the request was counted: in all limits or in none, a shadow aside. `limits`: have
/// `shadow`, such as LimitCheck.
template <class Limits>
bool read_sequence_replies(
    std::string_view parts, const Limits& limits, std::vector<KeyReply>& replies) noexcept
{
    if (!read_sequence_parts(parts, limits.size(), replies)) {
        return false;
    }
    bool admitted = true;
    for (std::size_t i = 0; i < replies.size(); ++i) {
        admitted = admitted && (limits[i].shadow || replies[i].admits_next);
    }
    for (KeyReply& reply : replies) {
        reply.taken = admitted ? reply.taken : 0;
    }
    return true;
}

/// The reply of several_script, by run and limit (Runs::reply_of): `answers` in all. It must be a
/// string of signed 64-bit big-endian integers, seven for each (taken, verdict, remaining, reset,
/// retry, detail, before: see lua/several.lua), then Redis's time. False: it is malformed, or there
/// is no memory.
bool read_several_reply(
    const redisReply& reply, std::size_t answers, std::vector<KeyReply>& replies) noexcept;

/// Whether no more was taken than was asked for: a lease of more could last without an end.
bool fits(std::span<const KeyReply> replies, const Runs& asked) noexcept;

}  // namespace ratelimit

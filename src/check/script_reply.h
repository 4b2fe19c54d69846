#pragma once

#include "check/runs.h"
#include "limit/run_reply.h"
#include "limit/verdict.h"

#include <cstddef>
#include <string_view>
#include <vector>

struct redisReply;

namespace ratelimit {

/// The part of sequence_script's reply for one key: signed 64-bit big-endian integers: verdict (see
/// lua/sequence.lua), remaining, reset (microseconds), retry (microseconds; 0: granted, -1: never,
/// -2: ignored), the reset before (microseconds) and Redis's time.
struct SequenceReply {
    Verdict state;              // of the counts, but refused if the key is blocked
    bool spared = false;        // no refusal begins a block of the key now
    microseconds blocked{ 0 };  // what is left of the key's block
    microseconds reset_before{ 0 };
    microseconds server_time{ 0 };
    bool ignored = false;  // the statement of a concurrency limit (lua/concurrency.lua)

    /// Of a concurrency limit: where the entry of the holder is.
    std::int64_t place() const noexcept { return reset_before.count(); }
};

/// False: the part is malformed, and `reply` must not be used.
bool read_sequence_reply(std::string_view part, SequenceReply& reply) noexcept;

/// The parts of a request with this number of keys. False: one of them is malformed.
bool read_sequence_replies(
    std::string_view parts, std::size_t keys, std::vector<SequenceReply>& replies);

/// The reply as that to a run of one request, which was counted.
RunReply counted_run(const SequenceReply& reply) noexcept;

/// The reply of several_script: one answer for each run and each limit of it, in that order.
class SeveralReply {
public:
    /// `answers`: how many the reply must have. The reply must outlive this object.
    SeveralReply(const redisReply& reply, std::size_t answers) noexcept
        : reply_(reply), answers_(answers)
    {
    }

    /// Whether the reply is well-formed; if not, no other function may be called. It must be a
    /// string of signed 64-bit big-endian integers, seven for each answer (taken, verdict,
    /// remaining, reset, retry, detail, before: see lua/several.lua), then Redis's time.
    bool good() const noexcept;
    /// Whether no more was taken than was asked for: a lease of more could last without an end.
    bool fits(const Runs& asked) const noexcept;

    RunReply answer(std::size_t index) const noexcept;
    /// Whether the statement of a concurrency limit was ignored.
    bool ignored(std::size_t index) const noexcept;
    /// Since the epoch; 0: no limit needed Redis's clock.
    microseconds server_time() const noexcept;

private:
    const redisReply& reply_;
    const std::size_t answers_;
};

}  // namespace ratelimit

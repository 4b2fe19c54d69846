#pragma once

#include "check/runs.h"
#include "check/script_call.h"
#include "limit/run_reply.h"

#include <cstddef>
#include <cstdint>
#include <exception>
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

/// Reads the answers to a request of a sequence (lua/sequence.lua), limit by limit, or to the runs
/// of a call (lua/several.lua): doubles, and Redis's time for all calls.
class SequenceReader {
public:
    explicit SequenceReader(redis::ReplyPart part) noexcept;
    /// The answer of the next limit; what remains is within it, whatever a server replies. Of a
    /// request of several limits, `taken` is what this limit alone admits. False: it is malformed,
    /// and `reply` must not be used.
    bool next(const Policy& policy, std::int64_t cost, KeyReply& reply) noexcept;
    /// As next, of an answer with all numbers.
    bool next_whole(const Policy& policy, KeyReply& reply) noexcept;
    /// The answer of the next limit to a run.
    bool next_of_run(const Policy& policy, KeyReply& reply) noexcept;
    bool at_end() const noexcept { return left_.empty(); }

private:
    double take() noexcept;

    std::string_view left_;
    microseconds server_time_{ -1 };  // malformed
};

/// A request of one limit, and its cost. False: the part is malformed.
bool read_sequence_reply(
    redis::ReplyPart part, const Policy& policy, std::int64_t cost, KeyReply& reply) noexcept;

/// The same of charge_script.
bool read_whole_reply(redis::ReplyPart part, const Policy& policy, KeyReply& reply) noexcept;

/// The answers of one request as it was counted: in all limits or in none, a shadow aside.
/// `limits`: have `policy` and `shadow`, such as LimitCheck; cost(i): of the request in the i-th.
/// False: one of them is malformed, or there is no memory.
template <class Limits, class Cost>
bool read_sequence_replies(
    redis::ReplyPart part, const Limits& limits, Cost&& cost,
    std::vector<KeyReply>& replies) noexcept
try {
    SequenceReader reader(part);
    replies.resize(limits.size());
    bool admitted = true;
    for (std::size_t i = 0; KeyReply & reply : replies) {
        if (!reader.next(limits[i].policy, cost(i), reply)) {
            return false;
        }
        admitted = admitted && (limits[i].shadow || reply.admits_next);
        ++i;
    }
    for (KeyReply& reply : replies) {
        reply.taken = admitted ? reply.taken : 0;
    }
    return reader.at_end();
} catch (const std::exception&) {
    return false;
}

/// The reply of several_script, by run and limit (Runs::reply_of). False: it is malformed, or there
/// is no memory.
bool read_several_reply(
    const redisReply& reply, std::span<const LimitCheck> limits, std::size_t runs,
    std::vector<KeyReply>& replies) noexcept;

/// Whether no more was taken than was asked for: a lease of more could last without an end.
bool fits(std::span<const KeyReply> replies, const Runs& asked) noexcept;

}  // namespace ratelimit

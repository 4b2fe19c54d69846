#pragma once

#include "limit/decision.h"
#include "limit/run_reply.h"

#include <cstddef>
#include <string_view>

struct redisReply;

namespace ratelimit {

/// Reads a key's part of single_script's reply: four signed 64-bit big-endian integers: granted
/// (1 or 0), remaining, reset (microseconds), retry (microseconds; 0: granted, -1: never). False:
/// it has another shape, and `state` is not to be used.
bool read_single_part(std::string_view part, Verdict& state) noexcept;

/// The reply of several_script to so many answers, one for each run and limit, in that order.
class SeveralReply {
public:
    /// Reads nothing: the reply must outlive it.
    SeveralReply(const redisReply& reply, std::size_t answers) noexcept
        : reply_(reply), answers_(answers)
    {
    }

    /// Whether it has the shape of one; all else only if it does. A string, with seven signed
    /// 64-bit big-endian integers for each answer: taken, open (1 or 0), remaining, reset
    /// (microseconds), retry (microseconds; 0: open, -1: never), detail, reset before
    /// (microseconds); and then Redis's time.
    bool good() const noexcept;

    RunReply answer(std::size_t index) const noexcept;
    microseconds server_time() const noexcept;

private:
    const redisReply& reply_;
    const std::size_t answers_;
};

}  // namespace ratelimit

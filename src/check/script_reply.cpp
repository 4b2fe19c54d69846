#include "check/script_reply.h"

#include "check/script_call.h"
#include "redis/server_clock.h"

#include <hiredis/hiredis.h>

namespace ratelimit {

namespace {

constexpr std::size_t field_size = 8;
constexpr std::size_t several_fields = 7;

std::int64_t field(const char* fields, std::size_t index) noexcept
{
    const char* bytes = fields + index * field_size;
    const auto byte = [bytes](std::size_t at) {
        return static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at]));
    };
    // Compilers turn this one expression into a single load and byte swap.
    return static_cast<std::int64_t>(
        byte(0) << 56U | byte(1) << 48U | byte(2) << 40U | byte(3) << 32U | byte(4) << 24U
        | byte(5) << 16U | byte(6) << 8U | byte(7));
}

bool has_fields(const redisReply& reply, std::size_t fields) noexcept
{
    return reply.type == REDIS_REPLY_STRING && reply.len == fields * field_size;
}

std::optional<microseconds> retry_of(std::int64_t field) noexcept
{
    return field < 0 ? std::nullopt : std::optional{ microseconds{ field } };
}

/// `retry` of a statement that was ignored.
constexpr std::int64_t ignored_retry = -2;

/// Bit 0: granted. Bit 1: no refusal begins a block now. The other bits: what is left of the key's
/// block (us).
bool grants(std::int64_t verdict) noexcept
{
    return (verdict & 1) != 0;
}
bool spares(std::int64_t verdict) noexcept
{
    return (verdict & 2) != 0;
}
microseconds block_of(std::int64_t verdict) noexcept
{
    return microseconds{ verdict >> 2 };
}

/// remaining, reset and retry. Scripts compute no larger ones, also of times that are foreign, of
/// 56 bits; and no sum or small multiple of them overflows.
bool good_state(const char* fields, std::size_t at) noexcept
{
    constexpr std::int64_t most = std::int64_t{ 1 } << 58U;
    const auto is_from = [&](std::int64_t least, std::size_t index) {
        return field(fields, index) >= least && field(fields, index) <= most;
    };
    return is_from(0, at) && is_from(0, at + 1) && is_from(ignored_retry, at + 2);
}

/// A later time would make the numbers of statements ones that a double cannot tell apart.
bool good_time(microseconds since_epoch) noexcept
{
    return since_epoch.count() >= 0 && since_epoch <= redis::latest_time;
}

}  // namespace

bool read_sequence_reply(std::string_view part, SequenceReply& reply) noexcept
{
    const char* fields = part.data();
    if (part.size() != reply_bytes || field(fields, 0) < 0 || !good_state(fields, 1)) {
        return false;
    }
    Verdict& state = reply.state;
    state = {};
    state.granted = grants(field(fields, 0));
    state.remaining = field(fields, 1);
    state.reset = microseconds{ field(fields, 2) };
    state.retry_after = retry_of(field(fields, 3));
    reply.ignored = field(fields, 3) == ignored_retry;
    reply.spared = spares(field(fields, 0));
    reply.blocked = block_of(field(fields, 0));
    reply.reset_before = microseconds{ field(fields, 4) };
    reply.server_time = microseconds{ field(fields, 5) };
    return reply.reset_before.count() >= 0 && good_time(reply.server_time);
}

bool read_sequence_replies(
    std::string_view parts, std::size_t keys, std::vector<SequenceReply>& replies)
{
    const std::size_t bytes = parts.size() / keys;
    replies.resize(keys);
    bool good = true;
    for (std::size_t i = 0; i < keys; ++i) {
        good = good && read_sequence_reply(parts.substr(i * bytes, bytes), replies[i]);
    }
    return good;
}

RunReply counted_run(const SequenceReply& reply) noexcept
{
    RunReply run;
    run.taken = 1;
    run.remaining = reply.state.remaining;
    run.reset = reply.state.reset;
    run.reset_before = reply.reset_before;
    return run;
}

bool SeveralReply::good() const noexcept
{
    if (!has_fields(reply_, answers_ * several_fields + 1)) {
        return false;
    }
    for (std::size_t i = 0; i < answers_; ++i) {
        const std::size_t at = i * several_fields;
        if (field(reply_.str, at) < 0 || field(reply_.str, at + 1) < 0
            || !good_state(reply_.str, at + 2) || field(reply_.str, at + 5) < 0
            || field(reply_.str, at + 6) < 0) {
            return false;
        }
    }
    return good_time(server_time());
}

bool SeveralReply::fits(const Runs& asked) const noexcept
{
    bool fits = true;
    for (std::size_t i = 0; i < answers_; ++i) {
        fits = fits && field(reply_.str, i * several_fields) <= asked.asked_of(i);
    }
    return fits;
}

RunReply SeveralReply::answer(std::size_t index) const noexcept
{
    const std::size_t at = index * several_fields;
    RunReply answer;
    answer.taken = field(reply_.str, at);
    answer.admits_next = grants(field(reply_.str, at + 1));
    answer.spared = spares(field(reply_.str, at + 1));
    answer.blocked = block_of(field(reply_.str, at + 1));
    answer.remaining = field(reply_.str, at + 2);
    answer.reset = microseconds{ field(reply_.str, at + 3) };
    answer.retry_after = retry_of(field(reply_.str, at + 4));
    answer.detail = field(reply_.str, at + 5);
    answer.reset_before = microseconds{ field(reply_.str, at + 6) };
    return answer;
}

bool SeveralReply::ignored(std::size_t index) const noexcept
{
    return field(reply_.str, index * several_fields + 4) == ignored_retry;
}

microseconds SeveralReply::server_time() const noexcept
{
    return microseconds{ field(reply_.str, answers_ * several_fields) };
}

}  // namespace ratelimit

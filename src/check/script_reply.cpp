#include "check/script_reply.h"

#include "check/script_call.h"
#include "redis/server_clock.h"

#include <exception>
#include <optional>

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

/// `retry` of a statement that was ignored.
constexpr std::int64_t ignored_retry = -2;

/// Reads verdict, remaining, reset and retry. Bit 0 of the verdict: granted. Bit 1: no refusal
/// begins a block now. The other bits: what is left of the key's block (us).
void read_state(const char* fields, std::size_t at, KeyReply& reply) noexcept
{
    const std::int64_t verdict = field(fields, at);
    const std::int64_t retry = field(fields, at + 3);
    reply.admits_next = (verdict & 1) != 0;
    reply.spared = (verdict & 2) != 0;
    reply.blocked = microseconds{ verdict >> 2 };
    reply.remaining = field(fields, at + 1);
    reply.reset = microseconds{ field(fields, at + 2) };
    reply.retry_after = retry < 0 ? std::nullopt : std::optional{ microseconds{ retry } };
    reply.ignored = retry == ignored_retry;
}

/// Verdict, remaining, reset and retry. Scripts compute no larger ones, also of times that are
/// foreign, of 56 bits; and no sum or small multiple of them overflows.
bool good_state(const char* fields, std::size_t at) noexcept
{
    constexpr std::int64_t most = std::int64_t{ 1 } << 58U;
    const auto is_from = [&](std::int64_t least, std::size_t index) {
        return field(fields, index) >= least && field(fields, index) <= most;
    };
    return field(fields, at) >= 0 && is_from(0, at + 1) && is_from(0, at + 2)
        && is_from(ignored_retry, at + 3);
}

/// A later time would make the numbers of statements ones that a double cannot tell apart.
bool good_time(microseconds since_epoch) noexcept
{
    return since_epoch.count() >= 0 && since_epoch <= redis::latest_time;
}

}  // namespace

bool read_sequence_reply(std::string_view part, KeyReply& reply) noexcept
{
    const char* fields = part.data();
    if (part.size() != reply_bytes || !good_state(fields, 0)) {
        return false;
    }
    reply = {};
    read_state(fields, 0, reply);
    reply.taken = reply.admits_next ? 1 : 0;
    reply.place = field(fields, 4);
    reply.reset_before = microseconds{ field(fields, 4) };
    reply.server_time = microseconds{ field(fields, 5) };
    return reply.place >= 0 && good_time(reply.server_time);
}

bool read_sequence_parts(
    std::string_view parts, std::size_t limits, std::vector<KeyReply>& replies) noexcept
try {
    const std::size_t bytes = parts.size() / limits;
    replies.resize(limits);
    bool good = true;
    for (std::size_t i = 0; i < limits; ++i) {
        good = good && read_sequence_reply(parts.substr(i * bytes, bytes), replies[i]);
    }
    return good;
} catch (const std::exception&) {
    return false;
}

bool read_several_reply(
    const redisReply& reply, std::size_t answers, std::vector<KeyReply>& replies) noexcept
try {
    const std::size_t numbers = answers * several_fields;
    if (reply.type != REDIS_REPLY_STRING || reply.len != (numbers + 1) * field_size) {
        return false;
    }
    const microseconds server_time{ field(reply.str, numbers) };
    bool good = good_time(server_time);
    replies.resize(answers);
    for (std::size_t at = 0; KeyReply & answer : replies) {
        answer = {};
        answer.taken = field(reply.str, at);
        read_state(reply.str, at + 1, answer);
        answer.detail = field(reply.str, at + 5);
        answer.reset_before = microseconds{ field(reply.str, at + 6) };
        answer.place = answer.taken > 0 ? answer.reset_before.count() : -1;
        answer.server_time = server_time;
        good = good && good_state(reply.str, at + 1) && answer.taken >= 0 && answer.detail >= 0
            && answer.reset_before.count() >= 0;
        at += several_fields;
    }
    return good;
} catch (const std::exception&) {
    return false;
}

bool fits(std::span<const KeyReply> replies, const Runs& asked) noexcept
{
    bool fits = true;
    for (std::size_t i = 0; i < replies.size(); ++i) {
        fits = fits && replies[i].taken <= asked.asked_of(i);
    }
    return fits;
}

}  // namespace ratelimit

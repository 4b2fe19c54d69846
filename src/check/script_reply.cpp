#include "check/script_reply.h"

#include "check/script_call.h"

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
    // In one expression, of which compilers make one instruction.
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

bool good_flag(std::int64_t field) noexcept
{
    return field == 0 || field == 1;
}

/// remaining, reset and retry
bool good_state(const char* fields, std::size_t at) noexcept
{
    return field(fields, at) >= 0 && field(fields, at + 1) >= 0 && field(fields, at + 2) >= -1;
}

}  // namespace

bool read_single_part(std::string_view part, Verdict& state) noexcept
{
    const char* fields = part.data();
    if (part.size() != batch_format.reply_bytes || !good_flag(field(fields, 0))
        || !good_state(fields, 1)) {
        return false;
    }
    state.granted = field(fields, 0) == 1;
    state.remaining = field(fields, 1);
    state.reset = microseconds{ field(fields, 2) };
    state.retry_after = retry_of(field(fields, 3));
    return true;
}

bool SeveralReply::good() const noexcept
{
    if (!has_fields(reply_, answers_ * several_fields + 1)) {
        return false;
    }
    for (std::size_t i = 0; i < answers_; ++i) {
        const std::size_t at = i * several_fields;
        if (field(reply_.str, at) < 0 || !good_flag(field(reply_.str, at + 1))
            || !good_state(reply_.str, at + 2) || field(reply_.str, at + 5) < 0
            || field(reply_.str, at + 6) < 0) {
            return false;
        }
    }
    return true;
}

RunReply SeveralReply::answer(std::size_t index) const noexcept
{
    const std::size_t at = index * several_fields;
    RunReply answer;
    answer.taken = field(reply_.str, at);
    answer.admits_next = field(reply_.str, at + 1) == 1;
    answer.remaining = field(reply_.str, at + 2);
    answer.reset = microseconds{ field(reply_.str, at + 3) };
    answer.retry_after = retry_of(field(reply_.str, at + 4));
    answer.detail = field(reply_.str, at + 5);
    answer.reset_before = microseconds{ field(reply_.str, at + 6) };
    return answer;
}

microseconds SeveralReply::server_time() const noexcept
{
    return microseconds{ field(reply_.str, answers_ * several_fields) };
}

}  // namespace ratelimit

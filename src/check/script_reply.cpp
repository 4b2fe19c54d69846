#include "check/script_reply.h"

#include "check/script_call.h"
#include "redis/server_clock.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit {

namespace {

constexpr double ignored_retry = -2;  // of a statement

/// Scripts compute no larger numbers, even from foreign times, of 56 bits; no sum or small multiple
/// of them overflows.
constexpr double largest = 0x1p58;

/// With a later time, a double could not tell the numbers of statements apart.
bool good_time(microseconds since_epoch) noexcept
{
    return since_epoch.count() >= 0 && since_epoch <= redis::latest_time;
}

/// The double at the beginning.
double real(std::string_view bytes) noexcept
{
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data(), sizeof(bits));
    return std::bit_cast<double>(
        std::endian::native == std::endian::little ? bits : __builtin_bswap64(bits));
}

bool is_good(double number) noexcept
{
    return number >= 0 && number <= largest;
}

std::int64_t whole(double number) noexcept
{
    return static_cast<std::int64_t>(number);
}

/// The numbers that lua/gcra.lua computes from a debt in 1/quota us.
struct DebtNumbers {
    std::int64_t remaining;
    std::int64_t reset;
    std::int64_t retry;   // if the request is refused
    std::int64_t before;  // the reset without the cost
};

/// All products are exact.
DebtNumbers of_small_debt(
    std::int64_t debt, std::int64_t full, std::int64_t added, const Rate& rate) noexcept
{
    const auto up = [quota = rate.quota](std::int64_t number) {
        return number > 0 ? (number + quota - 1) / quota : 0;
    };
    const std::int64_t left = std::max<std::int64_t>(full - debt, 0) / rate.window.count();
    return { left, up(debt), up(debt + added - full), up(debt - added) };
}

/// Empty: a number is larger than scripts compute.
std::optional<DebtNumbers> of_large_debt(
    double debt, double full, double added, const Rate& rate) noexcept
{
    const auto quota = static_cast<double>(rate.quota);
    const auto split = [quota](double number) {
        const double rest = std::fmod(number, quota);
        return std::pair{ std::floor((number - rest) / quota + 0.5), rest };
    };
    const auto [ahead, rest] = split(debt);
    const auto [earlier, fraction] = split(std::max(debt - added, 0.0));
    const auto window = static_cast<double>(rate.window.count());
    const double near = std::floor((full - debt) / window + 0.5);  // the quotient may be rounded
    const double remaining = std::max(debt + near * window > full ? near - 1 : near, 0.0);
    const double reset = ahead + std::ceil(rest / quota);
    const double retry = std::max(ahead + std::ceil((rest + added - full) / quota), 0.0);
    if (remaining > largest || reset > largest || retry > largest) {
        return std::nullopt;
    }
    const double before = earlier + std::ceil(fraction / quota);
    return DebtNumbers{ whole(remaining), whole(reset), whole(retry), whole(before) };
}

/// The short answer of lua/gcra.lua.
bool read_debt(double answer, const Policy& policy, std::int64_t cost, KeyReply& reply) noexcept
{
    constexpr double exact = 0x1p52;
    const bool granted = answer >= 0;
    const double debt = granted ? answer : -1 - answer;
    if (!(debt >= 0 && debt <= 0x1p120)) {
        return false;
    }
    const bool never = cost > policy.limit();
    const auto window = static_cast<double>(policy.rate.window.count());
    const double full = static_cast<double>(policy.limit()) * window;
    const double added = never ? full : static_cast<double>(cost) * window;  // nothing is added
    const auto numbers = debt <= exact && full <= exact && added <= exact
        ? of_small_debt(whole(debt), whole(full), whole(added), policy.rate)
        : of_large_debt(debt, full, added, policy.rate);
    if (!numbers) {
        return false;
    }
    reply.admits_next = granted;
    reply.taken = granted ? 1 : 0;
    reply.remaining = numbers->remaining;
    reply.reset = microseconds{ numbers->reset };
    reply.reset_before = microseconds{ numbers->before };
    if (!granted) {
        reply.retry_after = never ? std::nullopt : std::optional{ microseconds{ numbers->retry } };
    }
    return true;
}

/// The short answer of lua/concurrency.lua.
bool read_held(
    double answer, double place, const Policy& policy, std::int64_t cost, KeyReply& reply) noexcept
{
    constexpr microseconds retry{ 1'000'000 };  // when units are released is not known
    const bool granted = answer >= 0;
    const double held = granted ? answer : -1 - answer;
    if (!(held >= 0 && held <= largest && place >= -1 && place <= largest)) {
        return false;
    }
    reply.ignored = place < 0;
    reply.place = whole(place);
    reply.admits_next = granted;
    reply.taken = granted ? 1 : 0;
    reply.remaining = std::max<std::int64_t>(policy.limit() - whole(held), 0);
    reply.reset = held > 0 ? retry : microseconds{ 0 };
    if (!granted) {
        reply.retry_after =
            reply.ignored || cost > policy.limit() ? std::nullopt : std::optional{ retry };
    }
    return true;
}

}  // namespace

SequenceReader::SequenceReader(redis::ReplyPart part) noexcept : left_(part.own)
{
    if (part.shared.size() == sizeof(double)) {
        const double time = real(part.shared);
        server_time_ = microseconds{ time >= 0 && time <= largest ? whole(time) : -1 };
    }
}

double SequenceReader::take() noexcept
{
    const double number = real(left_);
    left_.remove_prefix(sizeof(double));
    return number;
}

bool SequenceReader::next(const Policy& policy, std::int64_t cost, KeyReply& reply) noexcept
{
    const std::size_t numbers = answer_numbers(policy.algorithm, policy.block.count() > 0);
    if (numbers == whole_answer) {
        return next_whole(policy, reply);
    }
    if (left_.size() < numbers * sizeof(double) || !good_time(server_time_)) {
        return false;
    }
    reply = {};
    reply.server_time = server_time_;
    const double answer = take();
    return counts_at_one_time(policy.algorithm) ? read_held(answer, take(), policy, cost, reply)
                                                : read_debt(answer, policy, cost, reply);
}

bool SequenceReader::next_whole(const Policy& policy, KeyReply& reply) noexcept
{
    if (left_.size() < whole_answer * sizeof(double) || !good_time(server_time_)) {
        return false;
    }
    const auto at = [numbers = left_.data()](std::size_t index) {
        return real({ numbers + index * sizeof(double), sizeof(double) });
    };
    const double verdict = at(0);
    const double remaining = at(1);
    const double reset = at(2);
    const double retry = at(3);
    const double before = at(4);
    left_.remove_prefix(whole_answer * sizeof(double));
    if (!is_good(verdict) || !is_good(remaining) || !is_good(reset) || !is_good(before)
        || !(retry >= ignored_retry && retry <= largest)) {
        return false;
    }
    reply = {};
    reply.admits_next = (whole(verdict) & 1) != 0;
    reply.spared = (whole(verdict) & 2) != 0;
    reply.blocked = microseconds{ whole(verdict) >> 2 };
    reply.taken = reply.admits_next ? 1 : 0;
    reply.remaining = std::min(whole(remaining), policy.limit());
    reply.reset = microseconds{ whole(reset) };
    reply.retry_after = retry < 0 ? std::nullopt : std::optional{ microseconds{ whole(retry) } };
    reply.ignored = retry == ignored_retry;
    reply.reset_before = microseconds{ whole(before) };
    reply.server_time = server_time_;
    return true;
}

bool SequenceReader::next_of_run(const Policy& policy, KeyReply& reply) noexcept
{
    if (left_.size() < 2 * sizeof(double)) {
        return false;
    }
    const double taken = take();
    const double detail = take();
    if (!is_good(taken) || !is_good(detail) || !next_whole(policy, reply)) {
        return false;
    }
    reply.taken = whole(taken);
    reply.detail = whole(detail);
    reply.place = reply.taken > 0 ? reply.reset_before.count() : -1;
    return true;
}

bool read_sequence_reply(
    redis::ReplyPart part, const Policy& policy, std::int64_t cost, KeyReply& reply) noexcept
{
    SequenceReader reader(part);
    return reader.next(policy, cost, reply) && reader.at_end();
}

bool read_whole_reply(redis::ReplyPart part, const Policy& policy, KeyReply& reply) noexcept
{
    SequenceReader reader(part);
    return reader.next_whole(policy, reply) && reader.at_end();
}

bool read_several_reply(
    const redisReply& reply, std::span<const LimitCheck> limits, std::size_t runs,
    std::vector<KeyReply>& replies) noexcept
try {
    if (reply.type != REDIS_REPLY_STRING || reply.len < sizeof(double)) {
        return false;
    }
    const std::string_view text{ reply.str, reply.len };
    const std::size_t own = text.size() - sizeof(double);
    SequenceReader reader({ text.substr(0, own), text.substr(own) });
    replies.resize(runs * limits.size());
    for (std::size_t i = 0; KeyReply & answer : replies) {
        if (!reader.next_of_run(limits[i++ % limits.size()].policy, answer)) {
            return false;
        }
    }
    return reader.at_end();
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

#include "trace_caller.h"

#include "check/script_text.h"
#include "reply_bytes.h"

#include <cstdlib>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit {

namespace {

/// Replaces the expiry that a script set: longer than any that a script sets, so that it can be
/// recognised.
constexpr std::string_view far_life = "100000000000000";
constexpr std::int64_t far = 10'000'000'000'000;

/// Lua before a script that sets the time of Redis's TIME to the last ARGV.
constexpr std::string_view clock = R"lua(
local redis, microseconds = redis, table.remove(ARGV) + 0
do
    local real = redis
    redis = {
        pcall = real.pcall,
        call = function(command, ...)
            if command == 'TIME' then
                return { math.floor(microseconds / 1000000), microseconds % 1000000 }
            end
            return real.call(command, ...)
        end,
    }
end
)lua";

/// `moved`: how far Redis's clock moved from before the script until after PTTL.
TraceCaller::KeyLife life_of(std::int64_t pttl, std::int64_t moved)
{
    using Life = TraceCaller::Life;
    if (pttl < 0) {
        return { pttl == -1 ? Life::endless : Life::none, 0, 0 };
    }
    if (pttl > far) {
        return { Life::kept, 0, 0 };
    }
    return { Life::given, pttl, pttl + moved };
}

std::vector<std::int64_t> one_request(std::span<const LimitCheck> checks)
{
    std::vector<std::int64_t> run{ 1 };
    for (const LimitCheck& check : checks) {
        run.push_back(check.cost);
    }
    return run;
}

/// The sizes of a call of sequence_script for one or more requests.
redis::BatchFormat sequence_format_of(std::span<const LimitCheck> checks)
{
    std::vector<SequenceLimit> limits;
    for (const LimitCheck& check : checks) {
        limits.push_back({ check.policy.algorithm, check.shadow, blocks(check) });
    }
    return sequence_format(limits);
}

redis::BatchFormat format_of(std::span<const LimitCheck> checks)
{
    redis::BatchFormat format = sequence_format_of(checks);
    format.reply_bytes += format.shared_bytes;
    return format;
}

std::int64_t milliseconds_of(const redisReply& time)
{
    return std::atoll(time.element[0]->str) * 1000 + std::atoll(time.element[1]->str) / 1000;
}

}  // namespace

TraceCaller::TraceCaller(const RedisServer& server)
    : context_(redisConnectUnix(server.socket_path().c_str()))
{
    EXPECT_EQ(context_->err, 0) << context_->errstr;
}

TraceCaller::TraceCaller(int fd, OnSocket) : context_(redisConnectFd(fd))
{
    EXPECT_EQ(context_->err, 0) << context_->errstr;
}

TraceCaller::~TraceCaller()
{
    redisFree(context_);
}

std::string TraceCaller::load(const std::string& script)
{
    auto* reply = static_cast<redisReply*>(
        redisCommand(context_, "SCRIPT LOAD %b", script.data(), script.size()));
    const std::string digest = reply->str;
    EXPECT_EQ(reply->type, REDIS_REPLY_STRING) << digest;
    freeReplyObject(reply);
    return digest;
}

std::string TraceCaller::load_with_clock(const std::string& script)
{
    return load(std::string(clock) + script);
}

TraceCaller::Answer TraceCaller::check(
    const std::string& digest, std::span<const LimitCheck> checks, bool several)
{
    const bool single = checks.size() == 1 && !several;
    if (single) {
        write_single(digest, checks.front(), 0);
    } else {
        const auto runs = one_request(checks);
        arguments_.begin(redis::Script::digest, digest, several_argument_count(checks));
        write_several_arguments(checks, runs, arguments_);
    }
    return call(checks, single);
}

void TraceCaller::write_sequence(
    const std::string& digest, std::span<const LimitCheck> checks, std::size_t limits,
    std::size_t more_args)
{
    const redis::BatchFormat format = sequence_format_of(checks);
    const std::size_t own = format.own_numbers ? 1 : 0;
    arguments_.begin(redis::Script::digest, digest, { format.keys, 1 + own + more_args });
    for (std::size_t at = 0; at < checks.size(); at += limits) {
        write_check_keys(checks.subspan(at, limits), arguments_);
    }
    arguments_.begin_packed();
    for (const LimitCheck& check : checks) {
        write_sequence_numbers(check, check.cost, arguments_);
    }
    arguments_.end_packed(limits * numbers_of_limit);
    if (own > 0) {
        arguments_.begin_packed();
        for (const LimitCheck& check : checks) {
            write_holder(check, arguments_);
        }
        arguments_.end_packed();
    }
}

void TraceCaller::write_single(
    const std::string& digest, const LimitCheck& check, std::size_t more_args)
{
    write_sequence(digest, { &check, 1 }, 1, more_args);
}

TraceCaller::Answer TraceCaller::check_by_redis_clock(
    const std::string& digest, const LimitCheck& check)
{
    LimitCheck by_redis = check;
    by_redis.now.reset();
    write_single(digest, by_redis, 1);
    arguments_.arg(check.now->count());
    return call({ &check, 1 }, true);
}

std::vector<std::optional<Verdict>> TraceCaller::check_together(
    const std::string& digest, std::span<const LimitCheck> checks, microseconds now)
{
    std::vector<LimitCheck> by_redis(checks.begin(), checks.end());
    for (LimitCheck& check : by_redis) {
        check.now.reset();
    }
    write_sequence(digest, by_redis, 1, 1);
    arguments_.arg(now.count());
    append(arguments_.text());
    redisReply* reply = next_reply();
    std::vector<std::optional<Verdict>> states;
    if (reply->type != REDIS_REPLY_STRING) {
        ADD_FAILURE() << (reply->type == REDIS_REPLY_ERROR ? reply->str : "wrong type");
    } else {
        SequenceReader reader(to_one_call({ reply->str, reply->len }));
        for (const LimitCheck& check : checks) {
            KeyReply part;
            const bool good = reader.next(check.policy, check.cost, part);
            states.push_back(good ? std::optional{ verdict_of(part) } : std::nullopt);
        }
        EXPECT_TRUE(reader.at_end());
    }
    freeReplyObject(reply);
    return states;
}

/// Sends the written arguments in a transaction.
TraceCaller::Answer TraceCaller::call(std::span<const LimitCheck> checks, bool single)
{
    append(redis::plain_command({ "MULTI" }));
    append(redis::plain_command({ "TIME" }));
    append(arguments_.text());
    for (const LimitCheck& check : checks) {
        append(redis::plain_command({ "PTTL", check.redis_key }));
        append(redis::plain_command({ "PEXPIRE", check.redis_key, far_life }));
    }
    append(redis::plain_command({ "TIME" }));
    append(redis::plain_command({ "EXEC" }));
    const std::size_t answers = 3 + 2 * checks.size();
    for (std::size_t i = 0; i < 1 + answers; ++i) {
        freeReplyObject(next_reply());
    }

    redisReply* reply = next_reply();
    Answer answer;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == answers) {
        const redisReply& decision = *reply->element[1];
        if (!read_states(decision, single, checks, answer)) {
            ADD_FAILURE() << (decision.type == REDIS_REPLY_ERROR ? decision.str : "wrong shape");
            answer.states.clear();
        }
        const auto moved =
            milliseconds_of(*reply->element[answers - 1]) - milliseconds_of(*reply->element[0]);
        for (std::size_t i = 0; i < checks.size(); ++i) {
            answer.lives.push_back(life_of(reply->element[2 + 2 * i]->integer, moved));
        }
    }
    freeReplyObject(reply);
    return answer;
}

bool TraceCaller::read_states(
    const redisReply& reply, bool single, std::span<const LimitCheck> checks, Answer& answer)
{
    std::vector<Verdict>& states = answer.states;
    states.resize(checks.size());
    if (single) {
        KeyReply part;
        const bool good = reply.type == REDIS_REPLY_STRING
            && (reply.len == charge_format.reply_bytes + charge_format.shared_bytes
                    ? read_whole_reply(
                        to_one_call({ reply.str, reply.len }), checks.front().policy, part)
                    : read_sequence_reply(
                        to_one_call({ reply.str, reply.len }), checks.front().policy,
                        checks.front().cost, part));
        states.front() = verdict_of(part);
        apply_block(states.front(), rest_of_block(part.blocked, checks.front().policy));
        return good;
    }
    std::vector<KeyReply> several;
    const bool good = read_several_reply(reply, checks, 1, several);
    for (std::size_t i = 0; good && i < checks.size(); ++i) {
        const LimitCheck& check = checks[i];
        states[i] = state_in_run(several[i], check.policy, check.cost, 0);
        answer.without.push_back(state_without(several[i], check.policy, check.cost, 0));
    }
    return good;
}

/// What has been written, and then a long life for the keys. Returns the reply to EXEC.
redisReply* TraceCaller::call_in_transaction(std::span<const LimitCheck> checks)
{
    append(redis::plain_command({ "MULTI" }));
    append(arguments_.text());
    for (const LimitCheck& check : checks) {
        append(redis::plain_command({ "PEXPIRE", check.redis_key, far_life }));
    }
    append(redis::plain_command({ "EXEC" }));
    for (std::size_t i = 0; i < 2 + checks.size(); ++i) {
        freeReplyObject(next_reply());
    }
    return next_reply();
}

std::vector<KeyReply> TraceCaller::check_sequence(
    const std::string& digest, std::span<const LimitCheck> checks, std::size_t limits)
{
    const redis::BatchFormat format = format_of(checks);
    write_sequence(digest, checks, limits, 0);
    redisReply* reply = call_in_transaction(checks);
    std::vector<KeyReply> replies;
    const bool done = reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 + checks.size();
    const std::string_view parts =
        done ? std::string_view(reply->element[0]->str, reply->element[0]->len) : "no transaction";
    if (parts.size() != format.reply_bytes) {
        ADD_FAILURE() << parts;
    } else {
        SequenceReader reader(to_one_call(parts));
        for (const LimitCheck& check : checks) {
            EXPECT_TRUE(reader.next(check.policy, check.cost, replies.emplace_back()));
        }
    }
    freeReplyObject(reply);
    return replies;
}

std::vector<std::vector<Verdict>> TraceCaller::check_runs(
    const std::string& digest, std::span<const LimitCheck> checks,
    std::span<const std::int64_t> runs)
{
    arguments_.begin(redis::Script::digest, digest, several_argument_count(checks));
    write_several_arguments(checks, runs, arguments_);
    redisReply* reply = call_in_transaction(checks);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1 + checks.size()) {
        ADD_FAILURE() << "the transaction failed";
        return {};
    }
    const redisReply& decision = *reply->element[0];
    const std::size_t stride = 1 + checks.size();
    std::vector<KeyReply> answers;
    const bool good = read_several_reply(decision, checks, runs.size() / stride, answers);
    EXPECT_TRUE(good) << (decision.type == REDIS_REPLY_ERROR ? decision.str : "wrong shape");
    std::vector<std::vector<Verdict>> states;
    for (std::size_t run = 0; good && run < runs.size() / stride; ++run) {
        for (std::int64_t index = 0; index < std::abs(runs[run * stride]); ++index) {
            auto& verdicts = states.emplace_back();
            for (std::size_t i = 0; i < checks.size(); ++i) {
                verdicts.push_back(state_in_run(
                    answers[run * checks.size() + i], checks[i].policy, runs[run * stride + 1 + i],
                    index));
            }
        }
    }
    freeReplyObject(reply);
    return states;
}

/// What a script of one key has returned, whose arguments are written.
std::string TraceCaller::text_of_call(const LimitCheck& check)
{
    redisReply* reply = call_in_transaction({ &check, 1 });
    EXPECT_EQ(reply->elements, 2U);
    const redisReply& first = *reply->element[0];
    EXPECT_EQ(first.type, REDIS_REPLY_STRING) << first.str;
    std::string text(first.str, first.len);
    freeReplyObject(reply);
    return text;
}

void TraceCaller::refund(
    const std::string& digest, const Taken& taken, std::int64_t cost, microseconds now)
{
    LimitCheck check = taken.check;
    check.now = now;
    arguments_.begin(redis::Script::digest, digest, { 1, 1 });
    arguments_.key(check.redis_key);
    arguments_.begin_packed();
    write_refund_numbers(check, { cost, *taken.check.now, taken.state.reset }, arguments_);
    arguments_.end_packed();
    text_of_call(check);
}

bool TraceCaller::state_block(
    const std::string& digest, LimitCheck check, const BlockStatement& statement)
{
    check.redis_key = check.block_key;
    arguments_.begin(redis::Script::digest, digest, { 1, 1 });
    arguments_.key(check.redis_key);
    arguments_.begin_packed();
    write_block_numbers(check.now, statement, arguments_);
    arguments_.end_packed();
    return text_of_call(check) == "+";
}

std::int64_t TraceCaller::number(std::initializer_list<std::string_view> words)
{
    append(redis::plain_command(words));
    redisReply* reply = next_reply();
    const std::int64_t number = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    freeReplyObject(reply);
    return number;
}

void TraceCaller::append(std::string_view text)
{
    redisAppendFormattedCommand(context_, text.data(), text.size());
}

redisReply* TraceCaller::next_reply()
{
    void* reply = nullptr;
    EXPECT_EQ(redisGetReply(context_, &reply), REDIS_OK) << context_->errstr;
    return static_cast<redisReply*>(reply);
}

}  // namespace ratelimit

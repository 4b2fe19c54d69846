#pragma once

#include "check/script_call.h"
#include "check/script_reply.h"
#include "model.h"
#include "redis_server.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

struct redisContext;
struct redisReply;

namespace ratelimit {

/// The verdict of the counts on a request that this key alone decides.
inline Verdict verdict_of(const KeyReply& reply)
{
    return { reply.admits_next, reply.remaining, reply.reset, reply.retry_after };
}

/// A blocking connection that calls scripts with the arguments of script_call.h. Time is the
/// trace's, not Redis's: the expiry that a script sets for a key is recorded and replaced, in one
/// transaction with the script.
class TraceCaller {
public:
    /// By its Unix socket, which takes less time than TCP.
    explicit TraceCaller(const RedisServer& server);
    /// Over a connected socket, which is closed at the end.
    static TraceCaller on_socket(int fd) { return TraceCaller(fd, OnSocket{}); }
    ~TraceCaller();
    TraceCaller(const TraceCaller&) = delete;
    TraceCaller& operator=(const TraceCaller&) = delete;

    std::string load(const std::string& script);
    /// The same with a clock, for check_by_redis_clock.
    std::string load_with_clock(const std::string& script);

    /// The effect of a script on the expiry of a key.
    enum class Life { none, kept, given, endless };
    struct KeyLife {
        Life life = Life::none;  // none: the key does not exist
        // If given, its bounds: equal, unless Redis's clock moved on in between.
        std::int64_t least_ms = 0;
        std::int64_t most_ms = 0;
    };
    struct Answer {
        std::vector<Verdict> states;   // empty: the reply could not be read
        std::vector<Verdict> without;  // by several_script: as if the request had not been counted
        std::vector<KeyLife> lives;    // of each key
    };
    /// `several`: the digest is that of several_script, even for one limit.
    Answer check(
        const std::string& digest, std::span<const LimitCheck> checks, bool several = false);
    /// By sequence_script, with `now` of the check as the time of Redis's clock.
    Answer check_by_redis_clock(const std::string& digest, const LimitCheck& check);

    /// By sequence_script, in one call for all checks, with the clock that load_with_clock sets. A
    /// verdict is empty if a key's part could not be read; there are none after an error.
    std::vector<std::optional<Verdict>> check_together(
        const std::string& digest, std::span<const LimitCheck> checks, microseconds now);

    /// By sequence_script, in one call for one or more requests: the checks of the first request,
    /// those of the second, and so on. `limits`: of each request; only blocks need it. Empty: the
    /// reply could not be read.
    std::vector<KeyReply> check_sequence(
        const std::string& digest, std::span<const LimitCheck> checks, std::size_t limits = 1);

    /// By several_script, for runs of requests as in write_several_arguments. The verdicts of each
    /// limit for each request; empty: the reply could not be read.
    std::vector<std::vector<Verdict>> check_runs(
        const std::string& digest, std::span<const LimitCheck> checks,
        std::span<const std::int64_t> runs);

    /// A request that was counted.
    struct Taken {
        LimitCheck check;
        Verdict state;
    };
    /// By refund_script: this much of its cost.
    void refund(const std::string& digest, const Taken& taken, std::int64_t cost, microseconds now);

    /// By block_script. Returns whether a block began.
    bool state_block(const std::string& digest, LimitCheck check, const BlockStatement& statement);

    /// A command without a script; its integer.
    std::int64_t number(std::initializer_list<std::string_view> words);

private:
    struct OnSocket {};
    TraceCaller(int fd, OnSocket);
    void write_sequence(
        const std::string& digest, std::span<const LimitCheck> checks, std::size_t limits,
        std::size_t more_args);
    void write_single(const std::string& digest, const LimitCheck& check, std::size_t more_args);
    Answer call(std::span<const LimitCheck> checks, bool single);
    redisReply* call_in_transaction(std::span<const LimitCheck> checks);
    std::string text_of_call(const LimitCheck& check);
    void append(std::string_view text);
    redisReply* next_reply();
    bool read_states(
        const redisReply& reply, bool single, std::span<const LimitCheck> checks, Answer& answer);

    redisContext* context_;
    redis::ScriptArguments arguments_;
};

/// When a key would expire if the trace's time were Redis's: time passes as the checks' clock does,
/// but when that steps back it stands still, as does a key's remaining life; unless Redis's clock
/// is the checks' clock, and steps back with it.
class Expiry {
public:
    explicit Expiry(bool by_redis_clock = false) : by_redis_clock_(by_redis_clock) {}

    void pass(Model::Time step) { time_ += step > 0 || by_redis_clock_ ? step : 0; }
    void note(const TraceCaller::KeyLife& key)
    {
        if (key.life == TraceCaller::Life::given) {
            least_end_ = time_ + key.least_ms * 1000;
            most_end_ = time_ + key.most_ms * 1000;
        }
    }
    Model::Time least_left() const { return least_end_ - time_; }
    Model::Time most_left() const { return most_end_ - time_; }

private:
    Model::Time time_ = 0;
    Model::Time least_end_ = 0;
    Model::Time most_end_ = 0;
    const bool by_redis_clock_;
};

}  // namespace ratelimit

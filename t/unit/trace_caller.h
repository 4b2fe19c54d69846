#pragma once

#include "check/script_call.h"
#include "model.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

struct redisContext;
struct redisReply;

namespace ratelimit {

/// A blocking connection that calls scripts with what write_arguments writes. Time is the trace's,
/// not Redis's: what life a script gives to a key is noted and taken away again, in one transaction
/// with it.
class TraceCaller {
public:
    explicit TraceCaller(int port);
    /// Over a socket that is connected, which it closes.
    static TraceCaller on_socket(int fd) { return TraceCaller(fd, OnSocket{}); }
    ~TraceCaller();
    TraceCaller(const TraceCaller&) = delete;
    TraceCaller& operator=(const TraceCaller&) = delete;

    std::string load(const std::string& script);
    /// The same, for check_by_redis_clock.
    std::string load_with_clock(const std::string& script);

    /// What a script did to the life of a key.
    enum class Life { none, kept, given, endless };
    struct KeyLife {
        Life life = Life::none;  // none: there is no key
        // If given, at least and at most: the same, unless Redis's clock moved on meanwhile.
        std::int64_t least_ms = 0;
        std::int64_t most_ms = 0;
    };
    struct Answer {
        std::vector<Verdict> states;   // empty: the reply could not be read
        std::vector<Verdict> without;  // several_script's: as if the request were given back
        std::vector<KeyLife> lives;    // of each key
    };
    /// `several`: the digest is several_script's, though there may be but one limit.
    Answer check(
        const std::string& digest, std::span<const LimitCheck> checks, bool several = false);
    /// By single_script, as if `now` of the check were what Redis's clock says.
    Answer check_by_redis_clock(const std::string& digest, const LimitCheck& check);

    /// By single_script, in one call for all of the checks, by the clock that load_with_clock sets;
    /// an answer is empty where a key's part could not be read, and there is none after an error.
    std::vector<std::optional<Verdict>> check_together(
        const std::string& digest, std::span<const LimitCheck> checks, microseconds now);

    /// By several_script, for runs of requests as write_several_arguments takes them. What each
    /// request is told by each limit; empty: the reply could not be read.
    std::vector<std::vector<Verdict>> check_runs(
        const std::string& digest, std::span<const LimitCheck> checks,
        std::span<const std::int64_t> runs);

    /// By refund_script.
    void refund(
        const std::string& digest, const LimitCheck& check, microseconds taken,
        const Verdict& state);

    /// A command without a script; its integer.
    std::int64_t number(std::initializer_list<std::string_view> words);

private:
    struct OnSocket {};
    TraceCaller(int fd, OnSocket);
    void write_single(const std::string& digest, const LimitCheck& check, std::size_t more_args);
    Answer call(std::span<const LimitCheck> checks, bool single);
    void append(std::string_view text);
    redisReply* next_reply();
    bool read_states(
        const redisReply& reply, bool single, std::span<const LimitCheck> checks, Answer& answer);

    redisContext* context_;
    redis::ScriptArguments arguments_;
};

/// When a key would be gone, if the trace's time were Redis's: it passes as the checks' clock does,
/// but where that steps back it stands still, as the time that a key has left to live does; unless
/// Redis's clock is theirs, and steps back with it.
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

#pragma once

#include "check/script_call.h"
#include "redis/client.h"

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace ratelimit {

/// The format of statement_script's calls.
inline constexpr redis::BatchFormat statement_format =
    sequence_format(1, numbers_of(Algorithm::concurrency));

/// The numbers of such a call.
void write_statement(
    const Policy& policy, const StatementSource& source, redis::ScriptArguments& arguments);

/// States, when the process exits, that its requests hold nothing of a key any longer.
class LastStatement final : public redis::BatchCall, private StatementSource {
public:
    LastStatement(
        std::string key, const Policy& policy, redis::ScriptId script, Statement statement)
        : key_(std::move(key)), policy_(policy), script_(script), statement_(statement)
    {
    }

    bool answered() const noexcept { return answered_; }
    void send(redis::Client& client) noexcept;

    std::string_view routing_key() const noexcept override { return key_; }
    void ended(redis::Fate) noexcept override {}

private:
    redis::ScriptId script() const noexcept override { return script_; }
    redis::BatchFormat format() const noexcept override { return statement_format; }
    void write_keys(redis::ScriptArguments& arguments) const override { arguments.key(key_); }
    void write_numbers(redis::ScriptArguments& arguments) const override;
    bool on_part(std::string_view part) noexcept override;
    Statement statement() const noexcept override { return statement_; }

    std::string key_;
    Policy policy_;
    redis::ScriptId script_;
    Statement statement_;
    bool answered_ = false;
};

/// Those of one zone.
class LastStatements {
public:
    std::size_t size() const noexcept { return all_.size(); }
    template <class... Parts>
    void add(bool first, const Parts&... parts)
    {
        if (first) {
            all_.emplace_front(parts...);
        } else {
            all_.emplace_back(parts...);
        }
    }
    /// Sends, in their order, what is neither under way nor answered, until `most` are under way.
    void send(redis::Client& client, std::size_t most) noexcept;
    bool all_answered() const noexcept;

private:
    std::deque<LastStatement> all_;
};

}  // namespace ratelimit

#pragma once

#include "check/check_group.h"
#include "check/script_reply.h"
#include "redis/client.h"

#include <memory>
#include <string>
#include <vector>

namespace ratelimit {

/// A script call on its way for groups of the same keys, and the groups that wait for the next one.
/// It has all that it asks itself, since any of the groups may be gone when it is written again.
class SharedCheck final : public redis::Call, private redis::BatchPart {
public:
    explicit SharedCheck(Coalescer& owner) noexcept : owner_(owner)
    {
        repeatable = true;  // at worst it counts twice
    }

    /// Begins with the keys and policies of this group.
    void begin(std::size_t hash, const CheckGroup& group);
    /// Whether a group's check can go in one call with it.
    bool same(const CheckGroup& group) const noexcept;

    /// The first group. False: it was not sent, and nothing waits.
    bool ask(CheckGroup& group) noexcept;
    void wait(CheckGroup& group) noexcept { waiting_.push_back(group); }

    redis::BatchPart* batch_part() noexcept override { return single() ? this : nullptr; }
    void write(redis::CommandBuffer& command) const override;
    std::string_view routing_key() const noexcept override { return limits_.front().key; }
    unsigned request_count() const noexcept override;
    bool on_reply(const redisReply& reply) noexcept override;
    void on_failure(redis::Failure failure) noexcept override;

private:
    friend class Coalescer;

    redis::ScriptId script() const noexcept override { return scripts_.single; }
    const redis::BatchFormat& format() const noexcept override { return batch_format; }
    void write_numbers(redis::ScriptArguments& arguments) const override;
    bool on_part(std::string_view part) noexcept override;

    bool single() const noexcept;
    std::size_t answers() const noexcept;
    bool joins_last_run(const CheckGroup& group) const noexcept;
    bool add_to_runs(CheckGroup& group);
    void finish_runs(const CheckGroup& last) noexcept;
    bool ask_waiting(bool in_haste) noexcept;
    void watch_own_times() noexcept;
    void fail_overdue() noexcept;
    void read_several(const SeveralReply& answer) noexcept;
    bool lapsed(std::span<const BatchAnswer> answers) const noexcept;
    void hand_on(const SeveralReply& reply) noexcept;
    std::vector<BatchAnswer> answers_of_last_run(const SeveralReply& reply) const;
    std::int64_t passing(std::span<const BatchAnswer> answers) const noexcept;
    void tell(CheckGroup& group, std::span<const BatchAnswer> answers, std::int64_t index) noexcept;
    void fail_asked(bool apart) noexcept;
    void end(bool timed_out) noexcept;
    redis::milliseconds usual_end_of(const CheckGroup& group) const noexcept;
    bool overdue(const CheckGroup& group) const noexcept;

    Coalescer& owner_;
    SharedCheck* next_ = nullptr;  // in its bucket, or among the free ones
    std::size_t hash_ = 0;
    std::string keys_;                // of limits_, one after another
    std::vector<LimitCheck> limits_;  // without the costs
    CheckScripts scripts_;
    bool alone_ = true;
    std::vector<std::int64_t> runs_;    // as they are written
    unsigned requests_ = 0;             // of all runs, but those ahead
    std::int64_t ahead_ = 0;            // so many of the last run
    microseconds asked_at_{ 0 };        // by its owner's clock, the last request
    redis::milliseconds sent_at_{ 0 };  // one that counts ahead
    GroupList asked_;
    GroupList waiting_;
    std::unique_ptr<Timer> own_times_;  // of those asked in haste; null: never needed yet
};

}  // namespace ratelimit

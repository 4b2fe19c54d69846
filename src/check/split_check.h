#pragma once

#include "check/script_call.h"
#include "redis/client.h"

#include <memory>
#include <span>
#include <vector>

namespace ratelimit {

/// A client and its ids of the scripts that a limit is asked and given back by.
struct CheckScripts {
    redis::ScriptId single{};
    redis::ScriptId several{};  // of all limits that are asked together
    redis::ScriptId give_back{};
};

/// One limit of a request, with where it is asked and where its answer goes.
struct RemoteCheck : LimitCheck {
    redis::Client* client = nullptr;
    CheckScripts scripts;
    LimitState* state = nullptr;  // written when the answer comes
    std::uint32_t place = 0;      // as the client has it
};

/// Limits of a request that are in one place: one script call.
class CheckGroup final : public redis::Call {
public:
    enum class End : std::uint8_t { pending, answered, failed };

    /// Told once for each group, from the loop. It may send further groups.
    class Owner {
    public:
        virtual ~Owner() = default;
        virtual void group_ended(CheckGroup& group) noexcept = 0;
        /// It failed since its keys are apart now; limit by limit it can be asked.
        virtual void group_apart(CheckGroup& group) noexcept = 0;
    };

    /// `alone`: nothing else is asked for the request, so nothing will have to be given back.
    void set(std::span<RemoteCheck> checks, bool alone, Owner& owner) noexcept;
    /// False: the group has failed, and nobody is told.
    bool send();

    std::span<RemoteCheck> checks() const noexcept { return checks_; }
    End end() const noexcept { return end_; }
    bool alone() const noexcept { return alone_; }
    /// Whether it counted the request: no limit of it that counts refused.
    bool took() const noexcept;
    /// When its limit was asked, by the clock that decided it. After it took.
    microseconds taken_at(const RemoteCheck& check) const noexcept;

    redis::ScriptId script() const noexcept override;
    redis::ArgumentCount argument_count() const noexcept override;
    void write(redis::ScriptArguments& arguments) const override;
    std::string_view routing_key() const noexcept override { return checks_.front().key; }
    void on_reply(const redisReply& reply) noexcept override;
    void on_failure(redis::Failure failure) noexcept override;

private:
    bool read(const redisReply& reply) noexcept;

    std::span<RemoteCheck> checks_;
    bool alone_ = true;
    Owner* owner_ = nullptr;
    End end_ = End::pending;
    microseconds server_time_{ 0 };
};

/// The check of all limits of one request that are in Redis: one script call in each place where
/// keys are. What some of them took can be given back when others refuse.
class SplitCheck final : public CheckGroup::Owner {
public:
    class Owner {
    public:
        virtual ~Owner() = default;
        /// Every limit is answered or has failed. Never from inside send.
        virtual void checked() noexcept = 0;
    };

    /// Sorts `checks` by place; they must live as long as this, and are at least one.
    SplitCheck(std::span<RemoteCheck> checks, Owner& owner);

    /// False: all is decided at once, by failure, and the owner is not told.
    bool send();

    bool complete() const noexcept;  // every limit is answered
    /// Calls `visit` with each limit that has no answer.
    template <class Visit>
    void each_failed(Visit&& visit) const
    {
        each_group([&](const CheckGroup& group) {
            if (group.end() == CheckGroup::End::failed) {
                for (const RemoteCheck& check : group.checks()) {
                    visit(check);
                }
            }
        });
    }

    /// Gives back what was taken, and puts it back into the states, as far as they tell. `now`: by
    /// this node's clock.
    void give_back(microseconds now) noexcept;

    void group_ended(CheckGroup& group) noexcept override;
    void group_apart(CheckGroup& group) noexcept override;

private:
    template <class Visit>
    void each_group(Visit&& visit) const
    {
        visit(first_);
        for (const auto& group : more_) {
            visit(*group);
        }
    }
    void split(std::span<RemoteCheck> checks);
    CheckGroup& add_group(std::span<RemoteCheck> checks);

    Owner& owner_;
    CheckGroup first_;
    std::vector<std::unique_ptr<CheckGroup>> more_;
    std::size_t pending_ = 0;
};

}  // namespace ratelimit

#pragma once

#include "check/check_group.h"
#include "check/recycled.h"

#include <memory>
#include <span>
#include <vector>

namespace ratelimit {

/// The check of all limits of one request that are in Redis: one script call in each place where
/// keys are. What some of them took can be given back when others refuse.
class SplitCheck final : public CheckGroup::Owner {
public:
    class Owner {
    public:
        virtual ~Owner() = default;
        /// Every limit is answered or has failed. Never from inside send.
        virtual void checked() noexcept = 0;
        /// Some of its limits have counted requests ahead, as ask_ahead wanted. By limit, what it
        /// was answered for requests like this one, of which the first `spent` are not to be had
        /// any more. Before `checked`, or from settle_ahead.
        virtual void taken_ahead(
            std::span<const RemoteCheck> checks, std::span<const BatchAnswer> answers,
            std::int64_t spent) noexcept = 0;
    };

    /// Sorts `checks` by place; they must live as long as this, and are at least one.
    SplitCheck(std::span<RemoteCheck> checks, Owner& owner);

    /// Before send: has up to so many requests more, like this one, counted with it.
    void ask_ahead(std::int64_t requests) noexcept;

    /// False: all is decided at once, by failure, and the owner is not told.
    bool send();

    /// Calls `visit` with each limit that has an answer.
    template <class Visit>
    void each_answered(Visit&& visit) const
    {
        each_group([&](const CheckGroup& group) {
            if (group.end() == CheckGroup::End::answered) {
                for (const RemoteCheck& check : group.checks()) {
                    visit(check);
                }
            }
        });
    }

    /// After `checked`: limits in several places keep of what they took ahead as much as all of
    /// them have, and give back the rest, which would only lapse. `now`: by this node's clock.
    void settle_ahead(microseconds now) noexcept;

    /// Gives back what was taken, and puts it back into the states, as far as they tell. `now`: by
    /// this node's clock. False: there is nothing to give back.
    bool give_back(microseconds now) noexcept;

    void group_ended(CheckGroup& group) noexcept override;
    void group_apart(CheckGroup& group) noexcept override;
    void taken_ahead(
        CheckGroup& group, std::span<const BatchAnswer> answers,
        std::int64_t spent) noexcept override;

private:
    /// One of the places but the first.
    struct More final : Recycled<More> {
        CheckGroup group;
        std::unique_ptr<More> next;
    };

    template <class Visit>
    void each_group(Visit&& visit) const
    {
        visit(first_);
        for (const More* more = more_.get(); more != nullptr; more = more->next.get()) {
            visit(more->group);
        }
    }
    /// What one of several groups took ahead.
    struct Ahead {
        CheckGroup* group;
        std::vector<BatchAnswer> answers;
        std::int64_t spent;

        /// So many requests were let in by all limits that enforce.
        std::int64_t passing() const noexcept;
    };
    void settle(Ahead& ahead, std::int64_t kept, microseconds now) noexcept;
    void split(std::span<RemoteCheck> checks);
    CheckGroup& add_group(std::span<RemoteCheck> checks);

    Owner& owner_;
    CheckGroup first_;
    std::unique_ptr<More> more_;  // the latest first
    std::vector<Ahead> ahead_;
    std::size_t pending_ = 0;
};

}  // namespace ratelimit

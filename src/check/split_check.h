#pragma once

#include "check/check_group.h"

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

#pragma once

#include "check/script_call.h"
#include "limit/batch.h"
#include "redis/call.h"

#include <span>

namespace ratelimit {

class Coalescer;

/// The ids of the scripts that a limit is asked and given back by.
struct CheckScripts {
    redis::ScriptId single{};
    redis::ScriptId several{};  // of all limits that are asked together
    redis::ScriptId refund{};
};

/// One limit of a request, with where it is asked and where its answer goes.
struct RemoteCheck : LimitCheck {
    Coalescer* coalescer = nullptr;
    CheckScripts scripts;
    LimitState* state = nullptr;  // written when the answer comes
    LimitState without;           // of a counted request, if it is given back
    bool leased = false;          // it is of what another request took ahead
    /// No later than it is sent, by a clock of the owner's; if leased, than that was.
    microseconds asked{ 0 };
    std::size_t limit = 0;    // the owner's name for it
    std::uint32_t place = 0;  // as the client has it
};

/// A place in a list of groups, which it leaves when it is destroyed.
class GroupLink {
public:
    GroupLink() noexcept : next_(this), previous_(this) {}
    ~GroupLink() { leave(); }
    GroupLink(const GroupLink&) = delete;
    GroupLink& operator=(const GroupLink&) = delete;

protected:
    void leave() noexcept
    {
        next_->previous_ = previous_;
        previous_->next_ = next_;
        next_ = previous_ = this;
    }

private:
    friend class GroupList;
    GroupLink* next_;
    GroupLink* previous_;
};

/// Limits of a request that are in one place, and are asked by one script call; maybe together with
/// other requests.
class CheckGroup final : public GroupLink {
public:
    enum class End : std::uint8_t { pending, answered, failed };

    /// Told once for each group, from the loop. It may send further groups.
    class Owner {
    public:
        virtual ~Owner() = default;
        virtual void group_ended(CheckGroup& group) noexcept = 0;
        /// The call has counted requests ahead. By limit, what it was answered for requests like
        /// this one, of which the first `spent` are not to be had any more. The group's end
        /// follows.
        virtual void taken_ahead(
            CheckGroup& group, std::span<const BatchAnswer> answers,
            std::int64_t spent) noexcept = 0;
        /// It failed since its keys are apart now; limit by limit it can be asked.
        virtual void group_apart(CheckGroup& group) noexcept = 0;
    };

    /// `alone`: nothing else is asked for the request, so nothing will have to be given back.
    void set(std::span<RemoteCheck> checks, bool alone, Owner& owner) noexcept;
    /// Has the call take so many requests more, like this one, if it can.
    void ask_ahead(std::int64_t requests) noexcept { ahead_ = requests; }
    /// No later than another group of the request.
    void expire_with(const CheckGroup& other) noexcept { expires_ = other.expires_; }
    /// False: the group has failed, and nobody is told.
    bool send() noexcept;

    std::span<RemoteCheck> checks() const noexcept { return checks_; }
    End end() const noexcept { return end_; }
    bool alone() const noexcept { return alone_; }
    /// Whether it counted the request: no limit of it that counts refused.
    bool took() const noexcept;
    /// When its limit was asked, by the clock that decided it. After it took.
    microseconds taken_at(const RemoteCheck& check) const noexcept;

private:
    friend class SharedCheck;
    friend class Coalescer;

    void fail(bool apart) noexcept
    {
        end_ = End::failed;
        apart_ = apart;
    }
    void tell() noexcept;

    std::span<RemoteCheck> checks_;
    bool alone_ = true;
    Owner* owner_ = nullptr;
    End end_ = End::pending;
    bool apart_ = false;
    microseconds server_time_{ 0 };
    redis::milliseconds expires_{ 0 };  // 0: not sent yet
    std::int64_t ahead_ = 0;
    // While it is asked: which run of the call, and which request of that.
    std::size_t run_ = 0;
    std::int64_t index_ = 0;
};

/// Groups in order. Those that are destroyed leave it.
class GroupList {
public:
    bool empty() const noexcept { return ends_.next_ == &ends_; }
    CheckGroup& front() const noexcept { return *static_cast<CheckGroup*>(ends_.next_); }
    CheckGroup& back() const noexcept { return *static_cast<CheckGroup*>(ends_.previous_); }
    void push_back(CheckGroup& group) noexcept
    {
        GroupLink& link = group;
        link.leave();
        link.next_ = &ends_;
        link.previous_ = ends_.previous_;
        ends_.previous_->next_ = &link;
        ends_.previous_ = &link;
    }
    void take_all(GroupList& other) noexcept
    {
        while (!other.empty()) {
            push_back(other.front());
        }
    }
    CheckGroup& pop_front() noexcept
    {
        CheckGroup& group = front();
        static_cast<GroupLink&>(group).leave();
        return group;
    }
    template <class Visit>
    void each(Visit&& visit) const
    {
        for (GroupLink* link = ends_.next_; link != &ends_; link = link->next_) {
            visit(*static_cast<CheckGroup*>(link));
        }
    }

private:
    GroupLink ends_;
};

}  // namespace ratelimit

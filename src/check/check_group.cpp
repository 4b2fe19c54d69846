#include "check/check_group.h"

#include "check/coalescer.h"

#include <algorithm>

namespace ratelimit {

namespace {

bool counts_if_granted(const RemoteCheck& check) noexcept
{
    return check.shadow || check.state->granted;
}

}  // namespace

void CheckGroup::set(std::span<RemoteCheck> checks, bool alone, Owner& owner) noexcept
{
    checks_ = checks;
    alone_ = alone;
    owner_ = &owner;
    end_ = End::pending;
    apart_ = false;
    ahead_ = 0;  // each limit for itself would take what the others need not have
}

bool CheckGroup::send() noexcept
{
    const bool sent = checks_.front().coalescer->send(*this);
    end_ = sent ? End::pending : End::failed;
    return sent;
}

void CheckGroup::tell() noexcept
{
    if (apart_) {
        owner_->group_apart(*this);
    } else {
        owner_->group_ended(*this);
    }
}

bool CheckGroup::took() const noexcept
{
    return end_ == End::answered && std::all_of(checks_.begin(), checks_.end(), counts_if_granted);
}

microseconds CheckGroup::taken_at(const RemoteCheck& check) const noexcept
{
    return check.now.value_or(server_time_);
}

}  // namespace ratelimit

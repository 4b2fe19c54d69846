#include "check/script_reply.h"
#include "check/split_check.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// The fewest limits for which a reply's states do not fit the stack.
constexpr std::size_t many_limits = 16;

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
}

bool CheckGroup::send()
{
    bool sent = false;
    try {
        sent = checks_.front().client->send(*this);
    } catch (const std::exception&) {
        // Out of memory: as if there were no connection.
    }
    end_ = sent ? End::pending : End::failed;
    return sent;
}

bool CheckGroup::took() const noexcept
{
    return end_ == End::answered && std::all_of(checks_.begin(), checks_.end(), counts_if_granted);
}

microseconds CheckGroup::taken_at(const RemoteCheck& check) const noexcept
{
    return check.now.value_or(server_time_);
}

redis::ScriptId CheckGroup::script() const noexcept
{
    const CheckScripts& scripts = checks_.front().scripts;
    return alone_ && checks_.size() == 1 ? scripts.single : scripts.several;
}

redis::ArgumentCount CheckGroup::argument_count() const noexcept
{
    return alone_ && checks_.size() == 1 ? single_argument_count
                                         : several_argument_count(checks_.size());
}

void CheckGroup::write(redis::ScriptArguments& arguments) const
{
    if (alone_ && checks_.size() == 1) {
        write_single_arguments(checks_.front(), arguments);
        return;
    }
    write_several_arguments<RemoteCheck>(checks_, arguments);
}

void CheckGroup::on_reply(const redisReply& reply) noexcept
{
    end_ = read(reply) ? End::answered : End::failed;
    owner_->group_ended(*this);
}

bool CheckGroup::read(const redisReply& reply) noexcept
try {
    LimitState few[many_limits];
    std::vector<LimitState> many(checks_.size() < many_limits ? 0 : checks_.size());
    const std::span states{ many.empty() ? few : many.data(), checks_.size() };
    const bool single = alone_ && checks_.size() == 1;
    if (!read_reply(reply, states, single ? nullptr : &server_time_)) {
        return false;
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
        *checks_[i].state = states[i];
    }
    return true;
} catch (const std::exception&) {
    return false;  // out of memory
}

void CheckGroup::on_failure(redis::Failure failure) noexcept
{
    end_ = End::failed;
    if (failure == redis::Failure::keys_apart && checks_.size() > 1) {
        owner_->group_apart(*this);
    } else {
        owner_->group_ended(*this);
    }
}

}  // namespace ratelimit

// The part of Connection that makes a new connection ready.

#include "redis/connection.h"
#include "redis/connection_hooks.h"

#include <algorithm>
#include <stdexcept>

namespace ratelimit::redis {

void Connection::begin()
{
    std::string reason;
    address_ = server_.host;
    context_ = open_context(loop_, server_, *this, reason);
    if (context_ == nullptr) {
        lose(reason, is_own_lack(reason) ? Loss::starved : Loss::failed);
    }
}

/// It was of use: a server that accepts connections and closes them is not connected to in a loop.
bool Connection::proven() const noexcept
{
    const bool was_ready = usable();
    return was_ready && (answered_ || loop_.now() - ready_at_ >= proven_after);
}

/// Its server lets connections be made and answers no call: this is at least the second one in a
/// row that is lost so, and one that is ready says no more that the server is up.
bool Connection::answers_none(const CallQueue& lost) noexcept
{
    const bool was_ready = usable();
    const bool unanswered = was_ready && !answered_ && !lost.empty();
    unanswered_ += unanswered ? 1 : 0;
    return unanswered && unanswered_ > 1;
}

/// `probing`: the attempts themselves find out when a silent server answers again.
void Connection::connect_again(bool at_once, bool probing) noexcept
{
    milliseconds pause{ 0 };
    if (!at_once) {
        pause = probing ? std::max(attempted_ + probe_pause - loop_.now(), milliseconds{ 0 })
                        : backoff_.next();
    }
    state_ = at_once ? State::returning : State::pausing;
    connect_timer_->start(pause);
}

void Connection::connected() noexcept
{
    contained(*this, [this] { set_up(); });
}

void Connection::disconnected(std::string_view reason) noexcept
{
    lose(reason, Loss::failed, Context::freed_by_hiredis);
}

void Connection::write_handshake(const std::vector<std::string>& commands)
{
    for (const std::string& text : commands) {
        if (redisAsyncFormattedCommand(
                context_, Hooks::on_handshake_reply, nullptr, text.data(), text.size())
            != REDIS_OK) {
            throw std::runtime_error("out of memory");
        }
    }
}

void Connection::set_up()
{
    if (server_.unix_path.empty()) {
        redisEnableKeepAlive(&context_->c);
    }
    if (options_.tls != nullptr) {
        std::string reason;
        tls_ = options_.tls->start(context_->c, server_.host_name, reason);
        if (tls_ == nullptr) {
            lose(reason);
            return;
        }
    }
    write_handshake(handshake_.begin());
}

void Connection::handshake_reply(const redisReply& reply)
{
    in_flight_.replied(loop_.now());
    if (const auto refusal = handshake_.judge(reply)) {
        lose(*refusal, Loss::rejected);
        return;
    }
    if (handshake_.done() && state_ == State::connecting) {
        state_ = State::ready;
        ++times_ready_;
        ready_at_ = loop_.now();
        connect_timer_->stop();
        owner_.connection_ready(*this);
    }
}

}  // namespace ratelimit::redis

// The part of Connection that makes a new connection ready.

#include "redis/connection.h"
#include "redis/connection_hooks.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <unistd.h>

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
    const bool was_ready = state_ == State::ready || state_ == State::moving;
    return was_ready && (answered_ || loop_.now() - ready_at_ >= proven_after);
}

/// Its server lets connections be made and answers no call: this is at least the second one in a
/// row that is lost so, and one that is ready says no more that the server is up.
bool Connection::answers_none(const CallQueue& lost) noexcept
{
    const bool was_ready = state_ == State::ready || state_ == State::moving;
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

void Connection::command(std::string_view text, Digest* digest)
{
    if (redisAsyncFormattedCommand(
            context_, Hooks::on_introduction, digest, text.data(), text.size())
        != REDIS_OK) {
        throw std::runtime_error("out of memory");
    }
    ++introductions_;
}

/// The first commands of a connection, which leave together.
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
    introductions_ = 0;
    if (!options_.password.empty()) {
        command(auth_command(options_.username, options_.password));
    }
    name_connection();
    if (options_.database != 0) {
        command(plain_command({ "SELECT", std::to_string(options_.database) }));
    }
    if (options_.master_only) {
        command(plain_command({ "ROLE" }));
    }
    load_scripts();
    if (introductions_ == 0) {
        // No script: nothing to ask, but whether anybody is there.
        command(plain_command({ "TIME" }));
    }
}

/// For CLIENT LIST: which worker's it is. The reply is dropped: a server may refuse it.
void Connection::name_connection()
{
    const auto text =
        plain_command({ "CLIENT", "SETNAME", "nginx-ratelimit-" + std::to_string(getpid()) });
    redisAsyncFormattedCommand(context_, nullptr, nullptr, text.data(), text.size());
}

void Connection::load_scripts()
{
    for (std::size_t i = 0; i < scripts_.size(); ++i) {
        command(
            plain_command({ "SCRIPT", "LOAD", scripts_.text(static_cast<ScriptId>(i)) }),
            &digests_[i]);
    }
}

/// Whether a reply to one of the first commands, or to SCRIPT LOAD, whose digest it is, is as it
/// should be; the connection is lost if not.
bool Connection::accepts(const redisReply& reply, Digest* digest)
{
    if (reply.type == REDIS_REPLY_ERROR) {
        lose({ reply.str, reply.len }, Loss::rejected);
        return false;
    }
    if (digest != nullptr) {
        if (reply.type != REDIS_REPLY_STRING || reply.len != digest->size()) {
            lose("SCRIPT LOAD returned no digest", Loss::rejected);
            return false;
        }
        std::memcpy(digest->data(), reply.str, reply.len);
        return true;
    }
    // Of the commands of a connection that is to be a master's, only ROLE's reply is an array.
    if (options_.master_only && reply.type == REDIS_REPLY_ARRAY
        && (reply.elements == 0 || reply.element[0]->type != REDIS_REPLY_STRING
            || std::string_view(reply.element[0]->str, reply.element[0]->len) != "master")) {
        lose("it is not a master", Loss::rejected);
        return false;
    }
    return true;
}

void Connection::introduced(const redisReply& reply, Digest* digest)
{
    last_reply_ = loop_.now();
    if (!accepts(reply, digest)) {
        return;
    }
    --introductions_;
    if (introductions_ == 0 && state_ == State::connecting) {
        state_ = State::ready;
        ++times_ready_;
        ready_at_ = last_reply_;
        connect_timer_->stop();
        owner_.connection_ready(*this);
    }
}

}  // namespace ratelimit::redis

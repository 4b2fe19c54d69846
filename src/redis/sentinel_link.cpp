#include "redis/sentinel_link.h"

#include "redis/command.h"
#include "redis/reply_text.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

std::string_view next_word(std::string_view& text) noexcept
{
    const auto space = text.find(' ');
    const auto word = text.substr(0, space);
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    return word;
}

std::string subscription()
{
    return plain_command({ "SUBSCRIBE", "+switch-master", "+promoted-slave" });
}

}  // namespace

template <class Body>
void SentinelLink::contained(Body&& body) noexcept
try {
    body();
} catch (const std::exception& error) {
    lose(error.what());
}

SentinelLink::SentinelLink(
    EventLoop& loop, Endpoint sentinel, const ServerOptions& options, std::string master,
    SentinelLinkOwner& owner)
    : loop_(loop),
      options_(options),
      sentinel_(std::move(sentinel)),
      master_(std::move(master)),
      owner_(owner),
      timer_(loop.make_timer([this] { fire(); }))
{
}

void SentinelLink::start() noexcept
{
    contained([this] { begin(); });
}

void SentinelLink::close() noexcept
{
    timer_->stop();
    free();
}

void SentinelLink::begin()
{
    std::string reason;
    if (!connect(loop_, sentinel_, reason)) {
        lose(reason);
        return;
    }
    timer_->start(options_.connect_timeout + options_.timeout);
}

void SentinelLink::begin_handshake()
{
    if (options_.tls != nullptr) {
        start_tls(*options_.tls, sentinel_.host_name);
    }
    // Issued as one command whose callback gets all replies, like MONITOR. hiredis's own parsing of
    // subscription messages trusts the server: a malformed reply would crash the worker.
    std::string commands;
    awaited_ = Awaited::address;
    if (!options_.password.empty()) {
        commands = auth_command(options_.username, options_.password.text());
        awaited_ = Awaited::authentication;
    }
    commands += plain_command({ "SENTINEL", "get-master-addr-by-name", master_ });
    commands += subscription();
    if (!issue(commands)) {
        throw std::runtime_error("out of memory");
    }
    context().c.flags |= REDIS_MONITORING;
}

void SentinelLink::call_replied(const redisReply& reply) noexcept
{
    if (reply.type == REDIS_REPLY_ERROR) {
        lose(text_of(reply));
    } else {
        contained([&] { answered(reply); });
    }
}

void SentinelLink::answered(const redisReply& reply)
{
    switch (awaited_) {
    case Awaited::authentication:
        awaited_ = Awaited::address;
        break;
    case Awaited::address:
        awaited_ = Awaited::subscription;
        named(reply);
        break;
    case Awaited::subscription:
        // Not before: without the subscription, a change of the master would not be noticed.
        awaited_ = Awaited::news;
        timer_->start(most_silence);
        owner_.master_is(*this, found_);
        break;
    case Awaited::news:
        probed_ = false;
        timer_->start(most_silence);
        heard(reply);
        break;
    }
}

/// The reply to SENTINEL get-master-addr-by-name: address and port, or null.
void SentinelLink::named(const redisReply& reply)
{
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 2) {
        lose("it does not know the master");
        return;
    }
    find(text_of(*reply.element[0]), text_of(*reply.element[1]));
}

/// "message", "+switch-master", "name old-address old-port address port", or
/// "message", "+promoted-slave", "slave its-name address port @ name old-address old-port".
void SentinelLink::heard(const redisReply& reply)
{
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 3
        || text_of(*reply.element[0]) != "message") {
        return;
    }
    const bool promoted = text_of(*reply.element[1]) == "+promoted-slave";
    std::string_view text = text_of(*reply.element[2]);
    std::array<std::string_view, 6> words;
    std::generate(words.begin(), words.end(), [&text] { return next_word(text); });
    const auto [name, host, port] = promoted ? std::tuple(words[5], words[2], words[3])
                                             : std::tuple(words[0], words[3], words[4]);
    if (name == master_ && find(host, port)) {
        owner_.master_is(*this, found_);
    }
}

void SentinelLink::fire() noexcept
{
    if (awaited_ == Awaited::news && !probed_) {
        contained([this] { probe(); });
    } else {
        lose("no answer in time");
    }
}

/// Subscribes again, which needs no additional right of the sentinel's user. Does not add to
/// hiredis's list of callbacks: the one that gets all replies is there already.
void SentinelLink::probe()
{
    const std::string command = subscription();
    redisAsyncContext& to = context();
    if (to.c.obuf == nullptr  // as in issue
        || redisAppendFormattedCommand(&to.c, command.data(), command.size()) != REDIS_OK) {
        throw std::runtime_error("out of memory");
    }
    to.ev.addWrite(to.ev.data);
    probed_ = true;
    timer_->start(options_.connect_timeout + options_.timeout);
}

/// Sets found_. False: the address is malformed, and the link is lost.
bool SentinelLink::find(std::string_view host, std::string_view port)
{
    auto master = parse_endpoint(std::string(host) + ":" + std::string(port), sentinel_);
    if (!master) {
        lose("it returned no valid address of the master");
        return false;
    }
    found_ = std::move(*master);
    return true;
}

void SentinelLink::connected() noexcept
{
    contained([this] { begin_handshake(); });
}

void SentinelLink::lose(std::string_view reason) noexcept
{
    // The reason may be text of the context, which is freed here.
    const std::string told = options_.password.lost(reason, loop_.now());
    close();
    owner_.link_lost(*this, told);
}

}  // namespace ratelimit::redis

#include "redis/sentinel_link.h"

#include "redis/command.h"

#include <array>
#include <optional>
#include <stdexcept>
#include <utility>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

std::string_view text_of(const redisReply& reply) noexcept
{
    const bool is_text = reply.type == REDIS_REPLY_STRING || reply.type == REDIS_REPLY_STATUS
        || reply.type == REDIS_REPLY_ERROR;
    return is_text ? std::string_view{ reply.str, reply.len } : std::string_view{};
}

std::string_view next_word(std::string_view& text) noexcept
{
    const auto space = text.find(' ');
    const auto word = text.substr(0, space);
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    return word;
}

}  // namespace

struct SentinelLink::Hooks {
    static SentinelLink* of(const redisAsyncContext* context) noexcept
    {
        return static_cast<SentinelLink*>(static_cast<ContextOwner*>(context->data));
    }

    template <class Body>
    static void contained(SentinelLink& link, Body&& body) noexcept
    {
        try {
            body();
        } catch (const std::exception& error) {
            link.lose(error.what());
        }
    }

    static void on_reply(redisAsyncContext* context, void* data, void* answered_by_address) noexcept
    {
        SentinelLink* link = of(context);
        if (link == nullptr || data == nullptr) {
            return;  // a lost connection, which `disconnected` deals with
        }
        const auto& reply = *static_cast<const redisReply*>(data);
        if (reply.type == REDIS_REPLY_ERROR) {
            link->lose(text_of(reply));
            return;
        }
        contained(*link, [&] {
            if (answered_by_address != nullptr) {
                link->named(reply);
            } else {
                link->heard(reply);
            }
        });
    }
};

SentinelLink::SentinelLink(
    EventLoop& loop, const ServerOptions& options, std::string master, SentinelLinkOwner& owner)
    : loop_(loop),
      options_(options),
      master_(std::move(master)),
      owner_(owner),
      timer_(loop.make_timer([this] { lose("no answer in time"); }))
{
    timer_->on_exit(Timer::OnExit::ignore);
}

SentinelLink::~SentinelLink()
{
    close();
}

void SentinelLink::open(const Endpoint& sentinel) noexcept
{
    close();
    Hooks::contained(*this, [&] {
        sentinel_ = sentinel;
        begin();
    });
}

void SentinelLink::close() noexcept
{
    timer_->stop();
    tls_ = nullptr;
    free_context(std::exchange(context_, nullptr));
}

void SentinelLink::begin()
{
    std::string reason;
    context_ = open_context(loop_, sentinel_, *this, reason);
    if (context_ == nullptr) {
        lose(reason);
        return;
    }
    timer_->start(options_.connect_timeout + options_.timeout);
}

void SentinelLink::introduce()
{
    // One that dies without a word is noticed in a minute; the master that it watches, before.
    redisEnableKeepAlive(&context_->c);
    if (options_.tls != nullptr) {
        std::string reason;
        tls_ = options_.tls->start(context_->c, sentinel_.host_name, reason);
        if (tls_ == nullptr) {
            lose(reason);
            return;
        }
    }
    if (!options_.password.empty()) {
        send(auth_command(options_.username, options_.password), false);
    }
    send(plain_command({ "SENTINEL", "get-master-addr-by-name", master_ }), true);
    send(plain_command({ "SUBSCRIBE", "+switch-master" }), false);
}

void SentinelLink::send(std::string_view command, bool answered_by_address)
{
    void* const tag = answered_by_address ? this : nullptr;
    if (redisAsyncFormattedCommand(context_, Hooks::on_reply, tag, command.data(), command.size())
        != REDIS_OK) {
        throw std::runtime_error("out of memory");
    }
}

/// The reply to SENTINEL get-master-addr-by-name: address and port, or null.
void SentinelLink::named(const redisReply& reply)
{
    timer_->stop();
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 2) {
        lose("it does not know the master");
        return;
    }
    tell(text_of(*reply.element[0]), text_of(*reply.element[1]));
}

/// "message", "+switch-master", "name old-address old-port address port"; or what tells that AUTH
/// or SUBSCRIBE went well.
void SentinelLink::heard(const redisReply& reply)
{
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 3
        || text_of(*reply.element[0]) != "message") {
        return;
    }
    std::string_view text = text_of(*reply.element[2]);
    if (next_word(text) != master_) {
        return;
    }
    next_word(text);
    next_word(text);
    const auto host = next_word(text);
    tell(host, text);
}

void SentinelLink::tell(std::string_view host, std::string_view port)
{
    const auto master = parse_endpoint(std::string(host) + ":" + std::string(port), sentinel_);
    if (!master) {
        lose("it gave no address of the master");
        return;
    }
    owner_.master_is(*master);
}

void SentinelLink::connected() noexcept
{
    Hooks::contained(*this, [this] { introduce(); });
}

void SentinelLink::disconnected(std::string_view reason) noexcept
{
    lose(reason, true);
}

void SentinelLink::lose(std::string_view reason, bool freed_by_hiredis) noexcept
{
    char kept[128];  // the reason may be the context's own text
    const std::size_t length = reason.copy(kept, sizeof(kept));
    if (freed_by_hiredis && context_ != nullptr) {
        std::exchange(context_, nullptr)->data = nullptr;
    }
    close();
    owner_.link_lost({ kept, length });
}

}  // namespace ratelimit::redis

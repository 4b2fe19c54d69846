#include "redis/context.h"

#include "redis/reply_limits.h"
#include "redis/tls.h"

#include <cerrno>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

ContextOwner* owner_of(const redisAsyncContext* context) noexcept
{
    return static_cast<ContextOwner*>(context->data);
}

void on_connect(const redisAsyncContext* context, int status) noexcept
{
    ContextOwner* owner = owner_of(context);
    if (owner == nullptr) {
        return;
    }
    if (status == REDIS_OK) {
        owner->connected();
    } else {
        owner->disconnected(context->errstr);
    }
}

/// Why a connection is lost, by a limit, by TLS, or else by hiredis.
std::string reason_of(const redisAsyncContext& context, const ssl_st* tls)
{
    std::string reason(ReplyLimits::refusal(context));
    if (reason.empty() && tls != nullptr) {
        reason = TlsContext::failure(tls);
    }
    if (reason.empty()) {
        reason = context.errstr;
    }
    return reason.empty() ? "connection closed" : reason;
}

void on_disconnect(const redisAsyncContext* context, int) noexcept
{
    ContextOwner* owner = owner_of(context);
    if (owner == nullptr) {
        return;
    }
    try {
        owner->disconnected(reason_of(*context, owner->tls()));
    } catch (const std::exception&) {
        owner->disconnected("out of memory");
    }
}

/// A null reply means that the connection is lost, which `disconnected` handles.
void on_reply(redisAsyncContext* context, void* reply, void*) noexcept
{
    ContextOwner* owner = owner_of(context);
    if (owner != nullptr && reply != nullptr) {
        owner->call_replied(*static_cast<redisReply*>(reply));
    }
}

}  // namespace

redisAsyncContext* open_context(
    EventLoop& loop, const Endpoint& server, ContextOwner& owner, std::string& reason)
{
    redisOptions options{};
    if (!server.unix_path.empty()) {
        REDIS_OPTIONS_SET_UNIX(&options, server.unix_path.c_str());
    } else if (!server.host.empty()) {
        REDIS_OPTIONS_SET_TCP(&options, server.host.c_str(), server.port);
    } else {
        reason = "its address is not known";  // for a name, hiredis would block to look it up
        return nullptr;
    }
    errno = 0;
    redisAsyncContext* context = redisAsyncConnectWithOptions(&options);
    const bool no_file = errno == EMFILE || errno == ENFILE;
    if (context == nullptr) {
        reason = "out of memory";
        return nullptr;
    }
    if (context->err != 0) {
        reason = no_file ? no_file_left : context->errstr;
    } else if (!ReplyLimits::set(*context)) {
        reason = "out of memory";
    } else if (!loop.attach(*context)) {
        reason = no_connection_left;
    } else {
        context->data = &owner;
        if (server.unix_path.empty()) {
            redisEnableKeepAlive(&context->c);
        }
        redisAsyncSetConnectCallback(context, on_connect);
        redisAsyncSetDisconnectCallback(context, on_disconnect);
        return context;
    }
    redisAsyncFree(context);
    return nullptr;
}

bool issue_command(redisAsyncContext& context, std::string_view text, bool reply) noexcept
{
    // Without memory a write leaves hiredis no buffer for another command.
    return context.c.obuf != nullptr
        && redisAsyncFormattedCommand(
               &context, reply ? on_reply : nullptr, nullptr, text.data(), text.size())
        == REDIS_OK;
}

void free_context(redisAsyncContext* context) noexcept
{
    if (context != nullptr) {
        context->data = nullptr;
        redisAsyncFree(context);
    }
}

}  // namespace ratelimit::redis

#include "redis/context.h"

#include "redis/reply_limits.h"
#include "redis/tls.h"

#include <cerrno>
#include <utility>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

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

}  // namespace

struct Context::Callbacks {
    static Context* owner_of(const redisAsyncContext* context) noexcept
    {
        return static_cast<Context*>(static_cast<ContextOwner*>(context->data));
    }

    /// hiredis frees the context when its callback returns.
    static void lost(Context& owner, std::string_view reason) noexcept
    {
        std::exchange(owner.context_, nullptr)->data = nullptr;
        owner.disconnected(reason);
    }

    static void on_connect(const redisAsyncContext* context, int status) noexcept
    {
        Context* owner = owner_of(context);
        if (owner != nullptr && status == REDIS_OK) {
            owner->connected();
        } else if (owner != nullptr) {
            lost(*owner, context->errstr);
        }
    }

    static void on_disconnect(const redisAsyncContext* context, int) noexcept
    {
        Context* owner = owner_of(context);
        if (owner == nullptr) {
            return;
        }
        std::string reason;
        try {
            reason = reason_of(*context, owner->tls_);
        } catch (const std::exception&) {
            reason = "out of memory";
        }
        lost(*owner, reason);
    }

    /// A null reply means that the connection is lost, which `on_disconnect` handles.
    static void on_reply(redisAsyncContext* context, void* reply, void*) noexcept
    {
        Context* owner = owner_of(context);
        if (owner != nullptr && reply != nullptr) {
            owner->call_replied(*static_cast<redisReply*>(reply));
        }
    }
};

bool Context::connect(EventLoop& loop, const Endpoint& server, std::string& reason)
{
    redisOptions options{};
    if (!server.unix_path.empty()) {
        REDIS_OPTIONS_SET_UNIX(&options, server.unix_path.c_str());
    } else if (!server.host.empty()) {
        REDIS_OPTIONS_SET_TCP(&options, server.host.c_str(), server.port);
    } else {
        reason = "its address is not known";  // for a name, hiredis would block to look it up
        return false;
    }
    tls_ = nullptr;
    errno = 0;
    redisAsyncContext* context = redisAsyncConnectWithOptions(&options);
    const bool no_file = errno == EMFILE || errno == ENFILE;
    if (context == nullptr) {
        reason = "out of memory";
        return false;
    }
    if (context->err != 0) {
        reason = no_file ? no_file_left : context->errstr;
    } else if (!ReplyLimits::set(*context)) {
        reason = "out of memory";
    } else if (!loop.attach(*context)) {
        reason = no_connection_left;
    } else {
        context->data = static_cast<ContextOwner*>(this);
        if (server.unix_path.empty()) {
            redisEnableKeepAlive(&context->c);
        }
        redisAsyncSetConnectCallback(context, Callbacks::on_connect);
        redisAsyncSetDisconnectCallback(context, Callbacks::on_disconnect);
        context_ = context;
        return true;
    }
    redisAsyncFree(context);
    return false;
}

void Context::start_tls(const TlsContext& tls, const std::string& host)
{
    tls_ = tls.start(context_->c, host, *this);
}

bool Context::issue(std::string_view commands, bool reply) noexcept
{
    // Without memory a write leaves hiredis no buffer for another command.
    return open() && context_->c.obuf != nullptr
        && redisAsyncFormattedCommand(
               context_, reply ? Callbacks::on_reply : nullptr, nullptr, commands.data(),
               commands.size())
        == REDIS_OK;
}

void Context::free() noexcept
{
    if (redisAsyncContext* const context = std::exchange(context_, nullptr)) {
        context->data = nullptr;
        redisAsyncFree(context);
    }
}

}  // namespace ratelimit::redis

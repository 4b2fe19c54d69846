#include "redis/context.h"

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

redisAsyncContext* open_context(EventLoop& loop, const Endpoint& server, std::string& reason)
{
    redisOptions options{};
    if (!server.unix_path.empty()) {
        REDIS_OPTIONS_SET_UNIX(&options, server.unix_path.c_str());
    } else if (!server.host.empty()) {
        REDIS_OPTIONS_SET_TCP(&options, server.host.c_str(), server.port);
    } else {
        reason = "its address is not known";  // hiredis would look a name up, and block
        return nullptr;
    }
    redisAsyncContext* context = redisAsyncConnectWithOptions(&options);
    if (context == nullptr) {
        reason = "out of memory";
        return nullptr;
    }
    if (context->err != 0) {
        reason = context->errstr;
    } else if (!loop.attach(*context)) {
        reason = "no connection or memory left for it";
    } else {
        return context;
    }
    redisAsyncFree(context);
    return nullptr;
}

}  // namespace ratelimit::redis

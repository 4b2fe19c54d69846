#pragma once

#include "redis/connection.h"

#include <exception>
#include <string>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

// What hiredis calls: for the files that make up Connection.

namespace ratelimit::redis {

template <class Body>
void Connection::contained(Connection& connection, Body&& body) noexcept
{
    try {
        body();
    } catch (const std::exception& error) {
        connection.lose(error.what());
    }
}

struct Connection::Hooks {
    static Connection* of(const redisAsyncContext* context) noexcept
    {
        return static_cast<Connection*>(static_cast<ContextOwner*>(context->data));
    }

    static void on_handshake_reply(redisAsyncContext* context, void* reply, void*) noexcept
    {
        Connection* connection = of(context);
        // A null reply is a lost connection, which `disconnected` deals with.
        if (connection != nullptr && reply != nullptr) {
            contained(*connection, [=] {
                connection->handshake_reply(*static_cast<const redisReply*>(reply));
            });
        }
    }

    static void on_answer(redisAsyncContext* context, void* reply, void*) noexcept
    {
        Connection* connection = of(context);
        if (connection != nullptr && reply != nullptr) {
            contained(*connection, [=] {
                connection->answered(*static_cast<const redisReply*>(reply));
                connection->finish_move();
            });
        }
    }
};

}  // namespace ratelimit::redis

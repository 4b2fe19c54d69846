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

/// A context's data is its connection, or null once the connection has given it up: what hiredis
/// still calls then is of no interest.
struct Connection::Hooks {
    static Connection* of(const redisAsyncContext* context) noexcept
    {
        return static_cast<Connection*>(context->data);
    }

    static void on_connect(const redisAsyncContext* context, int status) noexcept
    {
        Connection* connection = of(context);
        if (connection == nullptr) {
            return;
        }
        if (status != REDIS_OK) {
            // hiredis frees the context when this returns.
            connection->lose(context->errstr, Loss::freed_by_hiredis);
            return;
        }
        contained(*connection, [connection] { connection->set_up(); });
    }

    static void on_disconnect(const redisAsyncContext* context, int) noexcept
    {
        Connection* connection = of(context);
        if (connection == nullptr) {
            return;
        }
        std::string reason;
        try {
            reason = connection->reason_of(*context);
        } catch (const std::exception&) {
            // Out of memory: lost without a reason.
        }
        connection->lose(reason.empty() ? "connection closed" : reason, Loss::freed_by_hiredis);
    }

    static void on_introduction(redisAsyncContext* context, void* reply, void* digest) noexcept
    {
        Connection* connection = of(context);
        // A null reply is a lost connection, which on_disconnect deals with.
        if (connection != nullptr && reply != nullptr) {
            contained(*connection, [=] {
                connection->introduced(
                    *static_cast<const redisReply*>(reply), static_cast<Digest*>(digest));
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

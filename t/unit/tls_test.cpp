// TLS sessions kept for the next connection.

#include "redis/context_owner.h"
#include "redis/tls.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>
#include <sys/socket.h>

namespace ratelimit::redis {
namespace {

/// A new connection to a server of this name, which sends nothing.
class Connected {
public:
    explicit Connected(const std::string& host)
    {
        int sockets[2] = {};
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
        context_.reset(redisConnectFd(sockets[0]));
        server_.reset(redisConnectFd(sockets[1]));
        context_->flags &= ~REDIS_BLOCK;
        context_->tcp.host = strdup(host.c_str());
        context_->tcp.port = 6379;
    }
    redisContext& operator*() const { return *context_; }

private:
    struct Free {
        void operator()(redisContext* context) const { redisFree(context); }
    };
    std::unique_ptr<redisContext, Free> context_;
    std::unique_ptr<redisContext, Free> server_;
};

class TlsSessions : public testing::Test {
protected:
    struct Owner final : ContextOwner {
        std::size_t longest_reply() const noexcept override { return 0; }
    };

    void connect(const std::string& host)
    {
        connections_.push_back(std::make_unique<Connected>(host));
        EXPECT_NO_THROW(context_.start(**connections_.back(), host, owner_));
    }

    static TlsOptions options()
    {
        TlsOptions options;
        options.verify = false;
        return options;
    }

    Owner owner_;
    TlsContext context_{ options() };
    std::vector<std::unique_ptr<Connected>> connections_;
};

TEST_F(TlsSessions, of_disconnected_servers_are_dropped)
{
    for (int i = 0; i < 1000; ++i) {
        connect("server-" + std::to_string(i));
        connections_.clear();
        ASSERT_LE(context_.sessions(), TlsContext::most_sessions);
    }
    EXPECT_GT(context_.sessions(), 0U);
}

TEST_F(TlsSessions, of_connected_servers_are_kept_in_any_number)
{
    constexpr std::size_t servers = 2 * TlsContext::most_sessions;
    for (std::size_t i = 0; i < servers; ++i) {
        connect("server-" + std::to_string(i));
    }
    EXPECT_EQ(context_.sessions(), servers);
    connect("server-0");
    EXPECT_EQ(context_.sessions(), servers);
}

}  // namespace
}  // namespace ratelimit::redis

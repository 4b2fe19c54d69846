#pragma once

#include "redis/alarm.h"
#include "redis/server.h"

#include <memory>
#include <utility>
#include <vector>

namespace ratelimit::redis {

/// Servers that get no more calls, kept until their calls in flight have ended. A server may be
/// added from inside its own callbacks.
class RetiredServers {
public:
    RetiredServers(EventLoop& loop, const ServerOptions& options)
        : loop_(loop),
          longest_call_(options.connect_timeout + options.timeout),
          alarm_(loop, [this] { sweep(); })
    {
    }

    void add(std::unique_ptr<Server> server)
    {
        if (server == nullptr) {
            return;
        }
        servers_.push_back({ std::move(server), loop_.now() + longest_call_ });
        alarm_.set_no_later_than(servers_.back().until);
    }

    std::size_t size() const noexcept { return servers_.size(); }

    void close() noexcept
    {
        for (const auto& retired : servers_) {
            retired.server->close();
        }
    }

private:
    struct Retired {
        std::unique_ptr<Server> server;
        milliseconds until;
    };

    void sweep()
    {
        const milliseconds now = loop_.now();
        // Moved out first: a destructor fails calls, whose owners may add servers here.
        auto all = std::exchange(servers_, {});
        for (Retired& retired : all) {
            if (retired.until > now) {
                servers_.push_back(std::move(retired));
            }
        }
        if (!servers_.empty()) {
            alarm_.set(servers_.front().until);
        }
    }

    EventLoop& loop_;
    const milliseconds longest_call_;
    std::vector<Retired> servers_;  // sorted by `until`
    Alarm alarm_;
};

}  // namespace ratelimit::redis

#pragma once

#include "loop/event_loop.h"
#include "redis/endpoint.h"

#include <memory>
#include <vector>

namespace ratelimit::redis {

/// The servers that a client begins with, at the addresses that their names stand for.
class Seeds {
public:
    Seeds(EventLoop& loop, std::vector<Endpoint> endpoints)
        : loop_(loop), endpoints_(std::move(endpoints)), lookups_(endpoints_.size())
    {
    }

    const std::vector<Endpoint>& endpoints() const noexcept { return endpoints_; }

    /// Looks the names up again, where the loop does; the addresses change when answers come.
    void look_up()
    {
        for (std::size_t i = 0; i < endpoints_.size(); ++i) {
            const std::string& name = endpoints_[i].host_name;
            if (name.empty() || is_numeric_address(name)) {
                continue;
            }
            lookups_[i] = loop_.look_up(name, [this, i](const Addresses& addresses) {
                if (!addresses.all.empty()) {
                    endpoints_[i].host = addresses.all.front();
                }
            });
        }
    }

private:
    EventLoop& loop_;
    std::vector<Endpoint> endpoints_;
    std::vector<std::unique_ptr<Lookup>> lookups_;
};

}  // namespace ratelimit::redis

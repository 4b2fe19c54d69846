#pragma once

#include "loop/event_loop.h"
#include "redis/address_cycle.h"

#include <exception>
#include <memory>
#include <vector>

namespace ratelimit::redis {

/// The configured servers of a client, at all known addresses of their names.
class Seeds {
public:
    Seeds(EventLoop& loop, std::vector<Endpoint> endpoints)
        : loop_(loop), endpoints_(std::move(endpoints)), lookups_(endpoints_.size())
    {
    }

    /// Each seed at each of its addresses.
    std::vector<Endpoint> candidates() const
    {
        std::vector<Endpoint> all;
        for (const Endpoint& seed : endpoints_) {
            all.push_back(seed);
            for (const std::string& address : seed.addresses) {
                if (address != seed.host) {
                    all.push_back(seed);
                    all.back().host = address;
                }
            }
        }
        return all;
    }

    /// Looks up the names again, if the loop can. The results change the addresses later.
    void look_up() noexcept
    try {
        for (std::size_t i = 0; i < endpoints_.size(); ++i) {
            const std::string& name = endpoints_[i].host_name;
            if (name.empty() || is_numeric_address(name)) {
                continue;
            }
            lookups_[i] = loop_.look_up(name, [this, i](const Addresses& addresses) {
                if (!addresses.all.empty()) {
                    AddressCycle(endpoints_[i]).found(addresses.all);
                }
            });
        }
    } catch (const std::exception&) {
        // Out of memory: the names are looked up after the next failure.
    }

private:
    EventLoop& loop_;
    std::vector<Endpoint> endpoints_;
    std::vector<std::unique_ptr<Lookup>> lookups_;
};

}  // namespace ratelimit::redis

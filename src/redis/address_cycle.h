#pragma once

#include "redis/endpoint.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ratelimit::redis {

/// Chooses the address of a server whose name has several: those of the last look-up, and the one
/// that was announced with the name. An address that works is kept while it is one of them. If it
/// fails, the next one is used.
class AddressCycle {
public:
    /// `endpoint`: its `host` is the address in use. It must outlive this object.
    explicit AddressCycle(Endpoint& endpoint)
        : endpoint_(endpoint),
          announced_(endpoint.addresses.empty()),
          announced_host_(announced_ ? endpoint.host : std::string()),
          looked_up_(endpoint.addresses)
    {
    }

    /// Whether a server told the name, not the configuration.
    bool announced() const noexcept { return announced_; }
    /// Whether an address was announced, and another one is in use.
    bool uses_another() const noexcept
    {
        return !announced_host_.empty() && endpoint_.host != announced_host_;
    }

    /// The server is announced with this address beside its name, instead of an earlier one. True:
    /// the earlier one was in use, or the address in use is not known any longer. So this one is
    /// used now.
    bool announce(const std::string& address)
    {
        const bool moves = announced_host_ == endpoint_.host && address != endpoint_.host;
        announced_host_ = address;
        if (use_known(address)) {
            return true;
        }
        endpoint_.host = moves ? address : endpoint_.host;
        return moves;
    }

    /// A look-up has found these addresses; at least one. True: the address in use is not known any
    /// longer, so the first one is used now.
    bool found(std::vector<std::string> addresses)
    {
        looked_up_ = std::move(addresses);
        return use_known(looked_up_.front());
    }

    /// No connection could be made to this address. True: the address in use is another one, which
    /// has not been tried in this round. A round ends when an address works or all have failed.
    bool failed(std::string_view address)
    {
        const auto& all = endpoint_.addresses;
        if (all.size() < 2) {
            return false;
        }
        // If the addresses differ, another connection has failed here before.
        if (address == endpoint_.host) {
            const auto used = std::find(all.begin(), all.end(), endpoint_.host);
            endpoint_.host = used == all.end() || used + 1 == all.end() ? all.front() : used[1];
            failed_ = (failed_ + 1) % all.size();
        }
        return failed_ != 0;
    }

    void worked() noexcept { failed_ = 0; }

private:
    /// True: the address in use is not known any longer, and `otherwise` is used from now on.
    bool use_known(const std::string& otherwise)
    {
        const auto has = [](const auto& list, const std::string& address) {
            return std::find(list.begin(), list.end(), address) != list.end();
        };
        std::vector<std::string> known = looked_up_;
        if (!announced_host_.empty() && !has(known, announced_host_)) {
            known.push_back(announced_host_);
        }
        endpoint_.addresses = std::move(known);
        if (has(endpoint_.addresses, endpoint_.host)) {
            return false;
        }
        endpoint_.host = otherwise;
        return true;
    }

    Endpoint& endpoint_;
    const bool announced_;
    std::string announced_host_;          // empty: none
    std::vector<std::string> looked_up_;  // by the last look-up that found some
    // How many addresses have failed in this round, which may last longer than a look-up is valid.
    std::size_t failed_ = 0;
};

}  // namespace ratelimit::redis

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
          announced_host_(announced_ ? endpoint.host : std::string())
    {
    }

    /// Whether a server told the name, not the configuration.
    bool announced() const noexcept { return announced_; }

    /// The server was told again, with this address beside its name.
    void announce(const std::string& address)
    {
        if (announced_) {
            announced_host_ = address;
        }
    }

    /// A look-up has found these addresses; at least one. True: the address in use is not known any
    /// longer, so the first one is used now.
    bool found(std::vector<std::string> addresses)
    {
        auto& all = endpoint_.addresses;
        const auto known = std::find(addresses.begin(), addresses.end(), announced_host_);
        if (!announced_host_.empty() && known == addresses.end()) {
            addresses.push_back(announced_host_);
        }
        // If the addresses are the same in any order, the round continues: it may last longer than
        // a look-up is valid.
        if (!std::is_permutation(all.begin(), all.end(), addresses.begin(), addresses.end())) {
            failed_ = 0;
        }
        all = std::move(addresses);
        if (std::find(all.begin(), all.end(), endpoint_.host) != all.end()) {
            return false;
        }
        endpoint_.host = all.front();
        return true;
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
    Endpoint& endpoint_;
    const bool announced_;
    std::string announced_host_;
    std::size_t failed_ = 0;  // how many addresses have failed in this round
};

}  // namespace ratelimit::redis

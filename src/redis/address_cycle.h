#pragma once

#include "redis/endpoint.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ratelimit::redis {

/// Chooses the address of a server whose name stands for several: an address that works is kept as
/// long as the name has it, and the next one is taken when it fails.
class AddressCycle {
public:
    /// `endpoint`: its `host` is the address in use. It must outlive this.
    explicit AddressCycle(Endpoint& endpoint) : endpoint_(endpoint) {}

    /// The name stands for these addresses, of which there is at least one. True: the address in
    /// use is not one of them, and the first of them is in use now.
    bool found(std::vector<std::string> addresses)
    {
        auto& all = endpoint_.addresses;
        // A round goes on when the same ones are found, in whatever order: it may take longer than
        // an answer is valid.
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

    /// No connection could be made to this address. True: another address is in use now, and it has
    /// not been tried since one worked, or since all had failed.
    bool failed(std::string_view address)
    {
        const auto& all = endpoint_.addresses;
        if (all.size() < 2) {
            return false;
        }
        // Otherwise another connection failed there before.
        if (address == endpoint_.host) {
            const auto place = std::find(all.begin(), all.end(), endpoint_.host);
            endpoint_.host = place == all.end() || place + 1 == all.end() ? all.front() : place[1];
            failed_ = (failed_ + 1) % all.size();
        }
        return failed_ != 0;
    }

    void worked() noexcept { failed_ = 0; }

private:
    Endpoint& endpoint_;
    std::size_t failed_ = 0;  // addresses, in this round
};

}  // namespace ratelimit::redis

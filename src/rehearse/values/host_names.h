#pragma once

#include <string>
#include <unordered_map>

namespace ratelimit::rehearse {

/// Values by the names of hosts, as `server_name` and a `map` with `hostnames` have them.
template <class Value>
class HostNames {
public:
    /// `name` in lower case. Of equal names the first one counts. `wildcards`: "*.example.com",
    /// "www.example.*", and ".example.com" for "example.com" and "*.example.com".
    void add(const std::string& name, const Value& value, bool wildcards = true)
    {
        if (wildcards && name.starts_with('.')) {
            exact_.try_emplace(name.substr(1), value);
            heads_.try_emplace(name, value);
        } else if (wildcards && name.starts_with("*.")) {
            heads_.try_emplace(name.substr(1), value);
        } else if (wildcards && name.ends_with(".*")) {
            tails_.try_emplace(name.substr(0, name.size() - 1), value);
        } else {
            exact_.try_emplace(name, value);
        }
    }

    /// Of an exact name, the longest "*.example.com" or the longest "www.example.*"; null: of none.
    const Value* find(const std::string& host) const
    {
        if (const auto found = exact_.find(host); found != exact_.end()) {
            return &found->second;
        }
        for (auto dot = host.find('.', 1); !heads_.empty() && dot != host.npos;
             dot = host.find('.', dot + 1)) {
            if (const auto found = heads_.find(host.substr(dot)); found != heads_.end()) {
                return &found->second;
            }
        }
        for (auto dot = host.rfind('.'); !tails_.empty() && dot != host.npos && dot > 0;
             dot = host.rfind('.', dot - 1)) {
            if (const auto found = tails_.find(host.substr(0, dot + 1)); found != tails_.end()) {
                return &found->second;
            }
        }
        return nullptr;
    }

private:
    std::unordered_map<std::string, Value> exact_;
    std::unordered_map<std::string, Value> heads_;  // ".example.com"
    std::unordered_map<std::string, Value> tails_;  // "www.example."
};

}  // namespace ratelimit::rehearse

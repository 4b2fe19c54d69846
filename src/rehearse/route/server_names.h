#pragma once

#include "rehearse/values/host_names.h"
#include "rehearse/values/variables.h"

#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

struct ServerConf;

/// Finds a server by the name of a request's host, as nginx does: an exact name, the longest
/// "*.example.com", the longest "www.example.*", the first regular expression, or the default.
class ServerNames {
public:
    /// Of two servers with the same name, such as those of ports 80 and 443, the first one is
    /// found.
    void add(const std::string& name, const ServerConf& server, const Place& place);
    void set_default(const ServerConf& server) noexcept { default_ = &server; }

    /// Looks up which captures of the regular expressions are needed.
    void compile(const Scope& scope);

    bool has_patterns() const noexcept { return !patterns_.empty(); }
    /// Whether something needs a named capture of one.
    bool has_captures() const noexcept;

    /// `host` in lower case, without its port, or a name as it is written, such as "*.a.example" or
    /// "~^a". The captures of a regular expression that matches are those of the request. `only`:
    /// the regular expressions of other servers are passed over.
    const ServerConf* find(
        std::string_view host, Values& values, const ServerConf* only = nullptr) const;

private:
    HostNames<const ServerConf*> names_;
    struct Pattern {
        std::string text;
        RequestRegex regex;
        const ServerConf* server;
    };
    std::vector<Pattern> patterns_;
    const ServerConf* default_ = nullptr;
};

}  // namespace ratelimit::rehearse

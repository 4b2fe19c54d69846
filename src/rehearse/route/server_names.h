#pragma once

#include "rehearse/values/variables.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ratelimit::rehearse {

/// Finds a server by the name of a request's host, as nginx does: an exact name, the longest
/// "*.example.com", the longest "www.example.*", the first regular expression, or the default.
class ServerNames {
public:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// `preferred`: of two servers with the same name, such as those of ports 80 and 443, the
    /// preferred one is found.
    void add(std::string_view name, std::size_t server, bool preferred, const Place& place);
    void set_default(std::size_t server) noexcept { default_ = server; }

    /// Looks up which captures of the regular expressions are needed.
    void compile(const Scope& scope);

    bool has_patterns() const noexcept { return !patterns_.empty(); }
    /// Whether something needs a named capture of one.
    bool has_captures() const noexcept;

    /// `host` in lower case, without its port, or a name as it is written, such as "*.a.example" or
    /// "~^a". The captures of a regular expression that matches are those of the request.
    std::size_t find(std::string_view host, Values& values) const;

private:
    struct Found {
        std::size_t server;
        bool preferred;
    };
    using Names = std::unordered_map<std::string, Found>;

    static void put(Names& names, std::string name, Found found);

    Names exact_;
    Names heads_;  // ".example.com"
    Names tails_;  // "www.example."
    struct Pattern {
        std::string text;
        Regex regex;
        std::size_t server;
        Captures captures;
    };
    std::vector<Pattern> patterns_;
    std::size_t default_ = none;
};

}  // namespace ratelimit::rehearse

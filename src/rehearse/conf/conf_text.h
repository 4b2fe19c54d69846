#pragma once

#include "rehearse/conf/input_error.h"

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// A directive of nginx's configuration language, with the directives of its block.
struct Directive {
    std::string name;
    std::vector<std::string> args;  // unquoted
    std::vector<Directive> block;
    bool has_block = false;
    Place place;

    static constexpr std::size_t max_args = std::numeric_limits<std::size_t>::max();

    /// Throws InputError if there are fewer or more.
    void expect_args(std::size_t least, std::size_t most = max_args) const
    {
        if (args.size() < least || args.size() > most) {
            fail_at(place, "invalid number of arguments in \"" + name + "\" directive");
        }
    }

    std::vector<const Directive*> inner() const
    {
        std::vector<const Directive*> out;
        for (const Directive& one : block) {
            out.push_back(&one);
        }
        return out;
    }
};

/// A limit of the module or of nginx, as it is written and reported.
struct WrittenLimit {
    std::size_t zone = 0;  // index
    Place place;
    std::size_t number = 0;  // of all such limits of the configuration whose zone is known
    std::string location;    // where it is written: "/api/", "= /login", "server", "http"
    std::optional<std::size_t> server;  // index; empty: it is written in http
};

/// Reads a configuration as nginx does, with its includes: a relative path is relative to the
/// folder of `path`, and may have wildcards. Includes that are missing are passed over, and named
/// in `warnings`. Throws InputError.
std::vector<Directive> read_conf(const std::string& path, std::vector<std::string>& warnings);

/// Reads a configuration from memory; an include is an error. `name` is for messages.
std::vector<Directive> parse_conf(std::string_view text, const std::string& name);

}  // namespace ratelimit::rehearse

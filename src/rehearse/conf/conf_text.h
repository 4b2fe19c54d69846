#pragma once

#include "rehearse/conf/input_error.h"

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

    std::vector<const Directive*> inner() const
    {
        std::vector<const Directive*> out;
        for (const Directive& one : block) {
            out.push_back(&one);
        }
        return out;
    }
};

/// An include that cannot be read.
struct MissingInclude {
    std::string path;
    Place place;
};

/// Reads a configuration as nginx does, with its includes: a relative path is relative to the
/// folder of `path`, and may have wildcards. Includes that are missing are passed over. Throws
/// InputError.
std::vector<Directive> read_conf(const std::string& path, std::vector<MissingInclude>& missing);

/// Reads a configuration from memory; an include is an error. `name` is for messages.
std::vector<Directive> parse_conf(std::string_view text, const std::string& name);

}  // namespace ratelimit::rehearse

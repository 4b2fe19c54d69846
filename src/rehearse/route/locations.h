#pragma once

#include "rehearse/conf/conf_text.h"
#include "rehearse/conf/limit_conf.h"
#include "rehearse/conf/surroundings.h"
#include "rehearse/count/limit_req.h"
#include "rehearse/count/plan.h"
#include "rehearse/route/rewrite_program.h"
#include "rehearse/values/regex.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// A server, or a location of it.
struct Location {
    enum class Kind : std::uint8_t {
        server,  // the server itself, for paths without a location
        prefix,
        prefix_first,  // ^~: regular expressions are not tried
        exact,
        regex,
        named,  // @name: only internal redirects reach it
    };

    Kind kind = Kind::server;
    std::string text;  // of a prefix, or the whole pattern
    Surroundings own;
    const Location* parent = nullptr;  // null: it is the server
    std::optional<RequestRegex> regex;
    const Directive* directive = nullptr;
    std::vector<const Directive*> rewrites;  // of the rewrite module, in their order
    bool answers = false;                    // by `return`, whatever the request is
    const Directive* try_files = nullptr;
    const Directive* handler = nullptr;  // `proxy_pass`, `stub_status` and the like; null: files
    std::optional<LimitExcept> limit_except;
    std::vector<std::unique_ptr<Location>> children;

    // Compiled from them.
    std::optional<Plan> plan;     // empty: no limits
    LimitReqPlan limit_req_plan;  // the same
    RewriteProgram program;
    std::vector<Expression> try_targets;  // of try_files, without the slash of folders
    std::vector<Expression> index_files;
    std::vector<Expression> error_targets;  // of own.error_pages

    /// As it is written: "/api/", "= /login", "~ \.php$".
    std::string title() const;

    bool asks_upstream() const { return handler != nullptr && handler->name.ends_with("_pass"); }
};

/// Reads what stands between `location` and its block. Throws InputError.
void set_pattern(Location& location, const Directive& directive);

/// The location of a path, by nginx's rules: an exact one, else the longest prefix, then the first
/// regular expression that matches, unless that prefix has ^~. Null: "/path" is redirected to
/// "/path/", which has a location with a handler.
const Location* find_location(const Location& server, std::string_view path);

/// The location of paths that no other location has: `location /`, or else the server.
const Location& last_resort(const Location& server);

/// Calls `use` with a location and all locations in it.
template <class Top, class Use>
void for_each_location(Top& top, const Use& use)
{
    use(top);
    for (const auto& child : top.children) {
        for_each_location(static_cast<Top&>(*child), use);
    }
}

}  // namespace ratelimit::rehearse

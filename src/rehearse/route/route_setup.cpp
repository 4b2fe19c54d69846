#include "rehearse/route/route_setup.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

/// Where try_files, index and error_page send requests.
void compile_targets(Location& location, Scope& scope, std::vector<std::string>& warnings)
{
    const auto compiled = [&](const std::string& text, const Directive& directive) {
        try {
            return scope.compile(text, directive.place);
        } catch (const InputError& error) {
            warnings.push_back(
                "\"" + directive.name + "\" is not followed to \"" + text + "\": " + error.what());
            return Expression();
        }
    };
    location.try_targets.clear();
    if (location.try_files != nullptr) {
        const auto& args = location.try_files->args;
        for (const std::string& text : args) {
            const bool is_folder = text.ends_with('/') && &text != &args.back();
            location.try_targets.push_back(
                compiled(text.substr(0, text.size() - (is_folder ? 1 : 0)), *location.try_files));
        }
    }
    const Surroundings& around = location.own;
    location.index_files.clear();
    for (const std::string& name : around.index_files) {
        location.index_files.push_back(
            around.index == nullptr ? Expression({ { name, nullptr } })
                                    : compiled(name, *around.index));
    }
    location.error_targets.clear();
    if (around.error_pages != nullptr) {
        for (const ErrorPage& page : *around.error_pages) {
            location.error_targets.push_back(compiled(page.target, *page.directive));
        }
    }
}

void warn_of_unknown(
    const Location& location, const RequestFacts& facts, std::vector<std::string>& warnings)
{
    const Surroundings& around = location.own;
    for (const Directive* one : { around.auth_basic, around.auth_request }) {
        if (one != nullptr && facts.status == nullptr && !around.preaccess) {
            warnings.push_back(
                "\"" + one->name + "\" in " + one->place.text()
                + " is not followed: the log has no $status");
        }
    }
    if (around.rules != nullptr && facts.address == nullptr && !around.preaccess) {
        warnings.push_back(
            "\"allow\" and \"deny\" of " + location.directive->place.text()
            + " are not followed: the log has no $remote_addr");
    }
}

/// Where an `if` holds, nginx takes the configuration of its block, which has no try_files. That
/// seldom shows if the block answers or rewrites.
void warn_of_if(const Location& location, std::vector<std::string>& warnings)
{
    const bool reaches_content = !location.plan || location.plan->may_not_apply();
    if (location.try_files == nullptr || location.kind == Location::Kind::server
        || !reaches_content) {
        return;
    }
    for (const Directive& one : location.directive->block) {
        const bool leaves =
            std::any_of(one.block.begin(), one.block.end(), [](const Directive& inner) {
                return inner.name == "return" || inner.name == "rewrite";
            });
        if (one.name == "if" && !leaves) {
            warnings.push_back(
                "\"try_files\" is followed where the \"if\" in " + one.place.text()
                + " holds, and nginx forgets it there");
        }
    }
}

/// Names in a warning what the log does not have, and what is not followed.
void compile(
    Location& location, Scope& scope, const RequestFacts& facts, std::vector<std::string>& warnings)
{
    location.program.compile(location.rewrites, scope, facts, warnings);
    if (location.regex) {
        scope.bind(*location.regex);
    }
    compile_targets(location, scope, warnings);
    warn_of_unknown(location, facts, warnings);
    warn_of_if(location, warnings);
}

bool has_word(const Directive& one, std::string_view beginning)
{
    return std::any_of(one.args.begin(), one.args.end(), [beginning](const std::string& word) {
        return word.starts_with(beginning);
    });
}

/// Whether it has a redirect to another server, or one in its block.
bool redirects(const Directive& one)
{
    const bool rewrites = one.name == "return" || one.name == "rewrite";
    return (rewrites && (has_word(one, "http") || has_word(one, "$scheme")))
        || std::any_of(one.block.begin(), one.block.end(), redirects);
}

bool is_logged(const Directive& server)
{
    return std::none_of(server.block.begin(), server.block.end(), [](const Directive& one) {
        return one.name == "access_log" && has_word(one, "off");
    });
}

bool answers_names_of(const ServerConf& one, const ServerConf& other)
{
    return one.is_default || one.names.empty()
        || std::any_of(one.names.begin(), one.names.end(), [&other](const std::string& name) {
               return name == "_"
                   || std::find(other.names.begin(), other.names.end(), name) != other.names.end();
           });
}

}  // namespace

void declare_routes(const ServerConf& server, Scope& scope)
{
    for_each_location(server.top, [&scope](const Location& one) {
        RewriteProgram::declare(one.rewrites, scope);
        if (one.regex) {
            for (const auto& [name, number] : one.regex->names()) {
                scope.declare(name);
            }
        }
    });
    for (const std::string& name : server.names) {
        if (name.starts_with('~')) {
            scope.declare_captures(name.substr(1), server.top.directive->place);
        }
    }
}

void compile_routes(
    ServerConf& server, Scope& scope, const RequestFacts& facts, std::vector<std::string>& warnings)
{
    for_each_location(
        server.top, [&](Location& location) { compile(location, scope, facts, warnings); });
}

const Directive* redirects_to(const HttpConf& conf, const ServerConf& server, bool by_name)
{
    for (const auto& one : conf.servers) {
        const bool beside =
            !by_name || (server.only_tls && !one->only_tls && answers_names_of(*one, server));
        const Directive& text = *one->top.directive;
        if (one.get() != &server && !one->has_limits && beside && is_logged(text)
            && redirects(text)) {
            return &text;
        }
    }
    return nullptr;
}

}  // namespace ratelimit::rehearse

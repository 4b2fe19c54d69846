#include "rehearse/route.h"

#include "limit/rate_text.h"
#include "rehearse/request_line.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

/// Whether a path looks like that of a file that no program makes.
bool looks_static(std::string_view path) noexcept
{
    const auto name = path.substr(path.rfind('/') + 1);
    const auto dot = name.rfind('.');
    if (dot == std::string_view::npos || dot == 0 || dot + 1 == name.size()) {
        return false;
    }
    const auto extension = name.substr(dot + 1);
    constexpr std::array<std::string_view, 9> programs = { "php", "phtml", "cgi", "pl", "py",
                                                           "asp", "aspx",  "jsp", "do" };
    return std::none_of(programs.begin(), programs.end(), [extension](std::string_view one) {
        return same_caseless(one, extension);
    });
}

}  // namespace

std::string_view name_of(Reached reached) noexcept
{
    constexpr std::array<std::string_view, reached_kinds> names = {
        "limits", "none", "malformed", "rewrite", "internal", "deny", "authentication", "limit_req",
    };
    return names[static_cast<std::size_t>(reached)];
}

Router::Router(Variables& variables)
    : path_(variables.path()),
      args_(variables.args()),
      address_(variables.logged("remote_addr")),
      status_(variables.logged("status")),
      method_(variables.method())
{
    for (const char* name : { "upstream_status", "upstream_addr", "upstream_response_time" }) {
        upstream_ = upstream_ == nullptr ? variables.logged(name) : upstream_;
    }
    for (const char* name : { "uri", "document_uri" }) {
        if (final_path_ == nullptr && variables.is_logged(name)) {
            final_path_ = variables.logged(name);
        }
    }
    final_path_ = final_path_ == path_ ? nullptr : final_path_;
    if (variables.is_logged("http_host") && variables.is_logged("request")) {
        host_header_ = variables.logged("http_host");
        line_ = variables.logged("request");
    }
}

void Router::declare(const ServerConf& server, Scope& scope)
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

void Router::compile(ServerConf& server, Scope& scope, std::vector<std::string>& warnings)
{
    for_each_location(server.top, [&](Location& location) { compile(location, scope, warnings); });
}

/// What cannot be seen in the log is named.
void Router::compile(Location& location, Scope& scope, std::vector<std::string>& warnings)
{
    location.program.compile(
        location.rewrites, scope, [this](Values& values) { return file_found(values); }, warnings);
    if (location.regex) {
        location.captures = scope.captures_of(*location.regex);
    }
    if (location.try_files != nullptr) {
        const std::string& last = location.try_files->args.back();
        if (!last.starts_with('@') && !last.starts_with('=')) {
            try {
                location.fallback = scope.compile_in_rewrite(last, location.try_files->place);
            } catch (const InputError& error) {
                warnings.push_back(std::string("try_files is not followed: ") + error.what());
            }
        }
        if (upstream_ == nullptr && final_path_ == nullptr && location.own.limits == nullptr) {
            note_guess(*location.try_files, warnings);
        }
    }
    const Surroundings& around = location.own.around;
    for (const Directive* one : { around.auth_basic, around.auth_request }) {
        if (one != nullptr && status_ == nullptr && !around.preaccess) {
            warnings.push_back(
                "\"" + one->name + "\" in " + one->place.text()
                + " is not followed: the log has no $status");
        }
    }
    if (around.rules != nullptr && address_ == nullptr && !around.preaccess) {
        warnings.push_back(
            "\"allow\" and \"deny\" of " + location.directive->place.text()
            + " are not followed: the log has no $remote_addr");
    }
}

void Router::note_guess(const Directive& directive, std::vector<std::string>& warnings)
{
    warnings.push_back(
        "\"" + directive.name + "\" in " + directive.place.text()
        + ": which files exist is not in the log; a path such as /style.css with the status 200, "
          "206 or 304 is taken for one, every other for none (log $upstream_status to know)");
}

int Router::status_of(Values& values) const
{
    const auto number =
        status_ == nullptr ? std::nullopt : parse_number(status_->value(values), 100, 999);
    return static_cast<int>(number.value_or(0));
}

bool Router::is_method(Values& values, const LimitExcept& limit) const
{
    return method_ != nullptr && limit.applies_to(method_->value(values));
}

/// Whether nginx answered with a file of the current path.
bool Router::file_found(Values& values) const
{
    const std::string& path = values.rewritten().path;
    if (final_path_ != nullptr && final_path_->value(values) != path) {
        return false;
    }
    if (upstream_ != nullptr) {
        return upstream_->value(values).empty()
            && (status_ == nullptr || is_success(status_of(values)));
    }
    const int status = status_of(values);
    return (status == 0 || is_success(status)) && looks_static(path);
}

Router::Next Router::rewritten(Walk& walk, const RewriteProgram& program) const
{
    using End = RewriteProgram::Result::End;
    if (program.empty()) {
        return Next::stay;
    }
    const auto result = program.run(walk.values);
    if (result.end == End::answered) {
        walk.end(Reached::rewrite);
        return result.status >= 300 ? error_page(walk, result.status) : Next::done;
    }
    if (result.end == End::elsewhere && ++walk.turns > most_turns) {
        return walk.end(Reached::rewrite);
    }
    return result.end == End::elsewhere ? Next::find : Next::stay;
}

/// allow, deny and auth_*. Reached::none: the request goes on.
Reached Router::access(Walk& walk, const Surroundings& around) const
{
    bool denied = false;
    bool allowed = false;
    if (around.rules != nullptr && address_ != nullptr) {
        const auto verdict = allows(*around.rules, address_->value(walk.values));
        denied = verdict == false;
        allowed = verdict == true;
    }
    const bool asks = around.auth_basic != nullptr || around.auth_request != nullptr;
    const int status = status_of(walk.values);
    const bool failed =
        (asks && status == 401) || (around.auth_request != nullptr && status == 403);
    if (around.any && asks) {
        return allowed ? Reached::none : failed ? Reached::authentication : Reached::none;
    }
    return denied ? Reached::denied : failed ? Reached::authentication : Reached::none;
}

/// What comes before the limits of a location. Reached::none: the request goes on.
Reached Router::around(Walk& walk) const
{
    const Location& location = *walk.location;
    const Surroundings& own = location.own.around;
    const int status = status_of(walk.values);
    if ((own.limit_req && status == own.limit_req_status)
        || (own.limit_conn && status == own.limit_conn_status)) {
        return Reached::limit_req;
    }
    if (own.preaccess && location.plan) {
        return Reached::none;
    }
    const bool excepted = location.limit_except && is_method(walk.values, *location.limit_except);
    return access(walk, excepted ? location.limit_except->inner : own);
}

/// The phases of the location that was found.
Router::Next Router::in_location(Walk& walk) const
{
    const Location& location = *walk.location;
    if (location.own.around.internal && !walk.values.rewritten().redirected) {
        walk.end(Reached::internal);
        return error_page(walk, 404);
    }
    const Next next = rewritten(walk, location.program);
    if (next != Next::stay) {
        return next;
    }
    const Reached before = around(walk);
    if (before != Reached::none) {
        walk.end(before);
        return before == Reached::limit_req
            ? Next::done
            : error_page(walk, before == Reached::denied ? 403 : status_of(walk.values));
    }
    if (location.plan) {
        walk.route.plan = &*location.plan;
        return walk.end(Reached::limits);
    }
    return content(walk);
}

Router::Next Router::find_location_of(Walk& walk) const
{
    const Location& top = walk.server.top;
    const std::string& path = walk.values.rewritten().path;
    walk.location = path_ == nullptr ? &last_resort(top) : find_location(top, path);
    if (walk.location == nullptr) {
        return walk.end(Reached::rewrite);
    }
    if (walk.location->regex && path_ != nullptr) {
        walk.location->captures.match(*walk.location->regex, path, walk.values);
    }
    return in_location(walk);
}

/// nginx answers 400 to HTTP/1.1 without a Host header.
bool Router::lacks_host(Values& values) const
{
    if (host_header_ == nullptr || !host_header_->value(values).empty()) {
        return false;
    }
    const auto parts = parse_request_line(line_->value(values));
    return parts && parts->protocol.starts_with("HTTP/1.")
        && !parts->protocol.starts_with("HTTP/1.0");
}

Route Router::find(Values& values, const ServerConf& server) const
{
    Values::Rewritten& state = values.rewritten();
    state.server_name =
        server.names.empty() ? std::string_view() : std::string_view(server.names.front());
    Walk walk{ values, server };
    if (path_ != nullptr) {
        state.path = path_->value(values);
        if (state.path.empty() || lacks_host(values)) {
            walk.end(Reached::malformed);
            return walk.route;
        }
    }
    if (args_ != nullptr) {
        state.args = args_->value(values);
    }
    Next next = Next::server;
    while (next != Next::done) {
        if (next == Next::server) {
            walk.location = nullptr;
            next = rewritten(walk, server.top.program);
            next = next == Next::stay ? Next::find : next;
        } else if (next == Next::find) {
            next = find_location_of(walk);
        } else {
            next = in_location(walk);
        }
    }
    return walk.route;
}

}  // namespace ratelimit::rehearse

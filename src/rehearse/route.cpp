#include "rehearse/route.h"

#include "limit/rate_text.h"
#include "rehearse/request_line.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

const Location* named_location(const Location& server, std::string_view name)
{
    const auto found =
        std::find_if(server.children.begin(), server.children.end(), [name](const auto& one) {
            return one->kind == Location::Kind::named && one->text == name;
        });
    return found == server.children.end() ? nullptr : found->get();
}

}  // namespace

std::string_view name_of(Reached reached) noexcept
{
    constexpr std::array<std::string_view, reached_kinds> names = {
        "limits", "none", "malformed", "rewrite", "internal", "deny", "authentication", "limit_req",
    };
    return names[static_cast<std::size_t>(reached)];
}

Router::Router(Variables& variables) : facts_(variables) {}

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
        location.rewrites, scope, [this](Values& values) { return facts_.file_found(values); },
        warnings);
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
        if (facts_.upstream == nullptr && facts_.final_path == nullptr
            && location.own.limits == nullptr) {
            note_guess(*location.try_files, warnings);
        }
    }
    const Surroundings& around = location.own.around;
    for (const Directive* one : { around.auth_basic, around.auth_request }) {
        if (one != nullptr && facts_.status == nullptr && !around.preaccess) {
            warnings.push_back(
                "\"" + one->name + "\" in " + one->place.text()
                + " is not followed: the log has no $status");
        }
    }
    if (around.rules != nullptr && facts_.address == nullptr && !around.preaccess) {
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
    if (around.rules != nullptr && facts_.address != nullptr) {
        const auto verdict = allows(*around.rules, facts_.address->value(walk.values));
        denied = verdict == false;
        allowed = verdict == true;
    }
    const bool asks = around.auth_basic != nullptr || around.auth_request != nullptr;
    const int status = asks ? facts_.status_of(walk.values) : 0;
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
    const int status = own.limit_req || own.limit_conn ? facts_.status_of(walk.values) : 0;
    if ((own.limit_req && status == own.limit_req_status)
        || (own.limit_conn && status == own.limit_conn_status)) {
        return Reached::limit_req;
    }
    if (own.preaccess && location.plan) {
        return Reached::none;
    }
    const bool excepted =
        location.limit_except && facts_.is_method(walk.values, *location.limit_except);
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
            : error_page(walk, before == Reached::denied ? 403 : facts_.status_of(walk.values));
    }
    if (location.plan) {
        walk.route.plan = &*location.plan;
        return walk.end(Reached::limits);
    }
    return content(walk);
}

/// Where a request goes that no limit was in force for.
Router::Next Router::content(Walk& walk) const
{
    const Location& location = *walk.location;
    walk.end(Reached::none);
    const std::string& path = walk.values.rewritten().path;
    if (location.try_files != nullptr) {
        const auto& args = location.try_files->args;
        const bool tries_folder = std::any_of(
            args.begin(), args.end() - 1, [](const auto& one) { return one.ends_with('/'); });
        const std::string& last = args.back();
        if (facts_.file_found(walk.values)) {
            return Next::done;
        }
        if (path == "/" && tries_folder) {
            return index(walk);
        }
        if (last.starts_with('=')) {
            return error_page(
                walk,
                static_cast<int>(
                    parse_number(std::string_view(last).substr(1), 300, 599).value_or(0)));
        }
        std::string own;
        const std::string target(
            location.fallback ? location.fallback->value(walk.values, own)
                              : std::string_view(last));
        return redirect(walk, target);
    }
    const int status = facts_.status_of(walk.values);
    if (location.handler != nullptr) {
        const bool own_error = location.own.around.intercepts || status == 502 || status == 504;
        return own_error ? error_page(walk, status) : Next::done;
    }
    return path.ends_with('/') && status != 403 && status != 404 ? index(walk)
                                                                 : error_page(walk, status);
}

/// The first file of `index` that may be there: in another location, or plain.
Router::Next Router::index(Walk& walk) const
{
    const std::string folder = walk.values.rewritten().path;
    for (const std::string& name : walk.location->own.around.index) {
        if (name.find('$') != std::string::npos) {
            continue;
        }
        const std::string path = name.starts_with('/') ? name : folder + name;
        const Location* location = find_location(walk.server.top, path);
        const bool by_upstream = location != nullptr && location->handler != nullptr;
        // A request that was refused at that time was answered by neither.
        const bool fits = facts_.upstream == nullptr
            || (facts_.upstream->value(walk.values).empty()
                    ? !by_upstream || !is_success(facts_.status_of(walk.values))
                    : by_upstream);
        const bool is_final =
            facts_.final_path != nullptr && facts_.final_path->value(walk.values) == path;
        if (is_final
            || (facts_.final_path == nullptr && fits && location != nullptr
                && (by_upstream || location->plan))) {
            return redirect(
                walk,
                path + (walk.values.rewritten().args.empty() ? "" : "?")
                    + walk.values.rewritten().args);
        }
    }
    return error_page(walk, facts_.status_of(walk.values));
}

/// The page of an error, if there is one. `=` hides whether there was the error 404: as with
/// try_files.
Router::Next Router::error_page(Walk& walk, int status) const
{
    const auto& pages = walk.location == nullptr ? walk.server.top.own.around.error_pages
                                                 : walk.location->own.around.error_pages;
    if (pages == nullptr || walk.has_error_page) {
        return Next::done;
    }
    const bool hidden = walk.route.reached == Reached::none && walk.location->handler == nullptr
        && !facts_.file_found(walk.values);
    for (const ErrorPage& page : *pages) {
        if (page.code == status || (page.code == 404 && page.response_changes && hidden)) {
            walk.has_error_page = true;
            return redirect(walk, page.target);
        }
    }
    return Next::done;
}

/// An internal redirect to a path or to a named location.
Router::Next Router::redirect(Walk& walk, std::string_view target) const
{
    Values::Rewritten& state = walk.values.rewritten();
    if (++walk.turns > most_turns) {
        return walk.end(Reached::rewrite);
    }
    if (target.starts_with('@')) {
        walk.location = named_location(walk.server.top, target);
        if (walk.location == nullptr) {
            return walk.end(Reached::rewrite);
        }
        state.redirected = true;
        return Next::named;
    }
    if (!target.starts_with('/')) {
        return Next::done;  // a redirect of the client
    }
    state.redirected = true;
    const std::string text(target);
    const auto question = text.find('?');
    state.path = text.substr(0, question);
    state.args = question == text.npos ? "" : text.substr(question + 1);
    return Next::server;
}

Router::Next Router::find_location_of(Walk& walk) const
{
    const Location& top = walk.server.top;
    const std::string& path = walk.values.rewritten().path;
    walk.location = facts_.path == nullptr ? &last_resort(top) : find_location(top, path);
    if (walk.location == nullptr) {
        return walk.end(Reached::rewrite);
    }
    if (walk.location->regex && facts_.path != nullptr) {
        walk.location->captures.match(*walk.location->regex, path, walk.values);
    }
    return in_location(walk);
}

Route Router::find(Values& values, const ServerConf& server) const
{
    Values::Rewritten& state = values.rewritten();
    state.server_name =
        server.names.empty() ? std::string_view() : std::string_view(server.names.front());
    Walk walk{ values, server };
    if (facts_.path != nullptr) {
        state.path = facts_.path->value(values);
        if (state.path.empty() || facts_.lacks_host(values)) {
            walk.end(Reached::malformed);
            return walk.route;
        }
    }
    if (facts_.args != nullptr) {
        state.args = facts_.args->value(values);
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

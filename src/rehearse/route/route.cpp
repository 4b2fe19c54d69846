#include "rehearse/route/route.h"

#include "limit/rate_text.h"
#include "rehearse/values/request_line.h"

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

std::string_view place_name(Reached reached) noexcept
{
    constexpr std::array<std::string_view, reached_kinds> names = {
        "limits",    "none", "malformed",      "rewrite",   "internal",
        "too_large", "deny", "authentication", "limit_req",
    };
    return names[static_cast<std::size_t>(reached)];
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

/// nginx's own limits. Reached::none: the request goes on.
Reached Router::limit_req(Walk& walk) const
{
    const Location& location = *walk.location;
    const Surroundings& own = location.own;
    const LimitReqPlan& plan = location.limit_req_plan;
    const bool by_status = own.limit_req || (!plan.empty() && trusts_status_);
    if (!plan.empty() && !walk.is_counted) {
        const auto time = walk.values.record().time;
        const auto result = walk.values.follows_all()
            ? walk.limit_reqs.follow(plan, walk.values, time)
            : walk.limit_reqs.decide(plan, walk.values, time);
        walk.is_counted = result != LimitReqs::Result::unlimited;
        if (!by_status && walk.is_counted) {
            walk.route.limit_req = own.limit_req_dry_run ? LimitReqs::Result::passes : result;
        }
        if (walk.route.limit_req == LimitReqs::Result::refused) {
            return Reached::limit_req;
        }
    }
    const int status = by_status || own.limit_conn ? facts_.status_of(walk.values) : 0;
    return (by_status && !own.limit_req_dry_run && status == own.limit_req_status)
            || (own.limit_conn && status == own.limit_conn_status)
        ? Reached::limit_req
        : Reached::none;
}

/// The steps before the limits of a location. Reached::none: the request goes on.
Reached Router::around(Walk& walk) const
{
    const Location& location = *walk.location;
    const Surroundings& own = location.own;
    if (facts_.was_unreadable(walk.values, location.handler != nullptr)) {
        return Reached::malformed;
    }
    const Reached before = limit_req(walk);
    if (before != Reached::none
        || (own.preaccess && location.plan && location.plan->applies(walk.values))) {
        return before;
    }
    const bool excepted = location.limit_except && facts_.method != nullptr
        && location.limit_except->applies_to(facts_.method->value(walk.values));
    return access(walk, excepted ? location.limit_except->inner : own);
}

/// The phases of the location that was found.
Router::Next Router::in_location(Walk& walk) const
{
    const Location& location = *walk.location;
    if (location.own.internal && !walk.values.rewritten().redirected) {
        walk.end(Reached::internal);
        return error_page(walk, 404);
    }
    if (location.kind != Location::Kind::server) {  // the server's rewrites ran before
        const Next next = rewritten(walk, location.program);
        if (next != Next::stay) {
            return next;
        }
    }
    const Reached before = around(walk);
    if (before != Reached::none) {
        walk.end(before);
        const int status = before == Reached::denied             ? 403
            : walk.route.limit_req == LimitReqs::Result::refused ? location.own.limit_req_status
                                                                 : facts_.status_of(walk.values);
        return error_page(walk, status);
    }
    if (location.plan && location.plan->applies(walk.values)) {
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
        return try_files(walk);
    }
    if (location.handler != nullptr) {
        return error_page(walk, facts_.upstream_answer(walk.values, walk.upstreams++));
    }
    const int status = facts_.status_of(walk.values);
    return path.ends_with('/') && status != 403 && status != 404 ? index(walk)
                                                                 : error_page(walk, status);
}

/// Whether a path is answered with a file if it has one: then an empty $upstream_status does not
/// tell whether try_files has found its first file or its last one.
bool Router::is_of_files(const Walk& walk, std::string_view target) const
{
    const Location* found = target.starts_with('@')
        ? named_location(walk.server.top, target)
        : find_location(walk.server.top, target.substr(0, target.find('?')));
    return found != nullptr && found->handler == nullptr;
}

Router::Next Router::try_files(Walk& walk) const
{
    const auto& args = walk.location->try_files->args;
    const std::string path = walk.values.rewritten().path;
    const std::string& last = args.back();
    std::string own;
    const std::string target(
        last.starts_with('=') ? std::string_view(last)
                              : walk.location->fallback->value(walk.values, own));
    const RequestFacts::Other other{ target.starts_with('=') || !is_of_files(walk, target),
                                     !target.starts_with('@') };
    const bool tries_folder = std::any_of(
        args.begin(), args.end() - 1, [](const auto& one) { return one.ends_with('/'); });
    if (!path.ends_with('/') && facts_.file_found(walk.values, *walk.location->try_files, other)) {
        return Next::done;
    }
    if (tries_folder && facts_.folder_found(walk.values, *walk.location->try_files, other)) {
        constexpr int no_index = 403;
        if (!path.ends_with('/')) {
            return Next::done;  // it is redirected to the slash
        }
        return facts_.status_of(walk.values) == no_index ? error_page(walk, no_index) : index(walk);
    }
    if (target.starts_with('=')) {
        const auto code = parse_number(std::string_view(target).substr(1), 300, 599);
        return error_page(walk, static_cast<int>(code.value_or(0)));
    }
    return redirect(walk, target);
}

/// The first file of `index` that may be there: in another location, or plain.
Router::Next Router::index(Walk& walk) const
{
    const std::string folder = walk.values.rewritten().path;
    for (const Expression& file : walk.location->index_files) {
        std::string own;
        const std::string name(file.value(walk.values, own));
        if (name.empty()) {
            continue;  // it cannot be followed
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
        const Directive* asker = walk.location->own.index;
        if (is_final
            || (facts_.final_path == nullptr && fits && location != nullptr
                && (by_upstream || location->plan)
                && (asker == nullptr || facts_.knows_files()
                    || !walk.values.in_doubt(asker, path, false)))) {
            return redirect(
                walk,
                path + (walk.values.rewritten().args.empty() ? "" : "?")
                    + walk.values.rewritten().args);
        }
    }
    return error_page(walk, facts_.status_of(walk.values));
}

/// The page of an error, if there is one. `=`, or a limit of the page that refused, hides whether
/// there was the error: of a missing file, as with try_files, or of an upstream.
Router::Next Router::error_page(Walk& walk, int status) const
{
    const Location& location = walk.location == nullptr ? walk.server.top : *walk.location;
    const auto& pages = location.own.error_pages;
    if (pages == nullptr || walk.has_error_page) {
        return Next::done;
    }
    const bool by_nginx = walk.route.reached != Reached::none || location.own.intercepts;
    const auto hidden = [&](const ErrorPage& page) {
        const Directive& asker = *page.directive;
        if (walk.route.reached != Reached::none) {
            return false;
        }
        if (location.handler != nullptr) {
            const std::string question = page.target + " after " + std::to_string(walk.upstreams);
            return facts_.upstream_status == nullptr
                && walk.values.in_doubt(&asker, question, false);
        }
        const RequestFacts::Other other{ true, !page.target.starts_with('@') };
        const bool gets_slash = !walk.values.rewritten().path.ends_with('/')
            && facts_.folder_found(walk.values, asker, other);
        return page.code == 404 && !gets_slash && !facts_.file_found(walk.values, asker, other);
    };
    for (std::size_t i = 0; i < pages->size(); ++i) {
        const ErrorPage& page = (*pages)[i];
        const bool changed = page.response_changes || facts_.refusals.contains(status);
        if (location.handler != nullptr && !by_nginx && page.code != 502 && page.code != 504) {
            continue;  // the upstream's answer is not changed
        }
        if (page.code == status || (changed && hidden(page))) {
            walk.has_error_page = !location.own.recursive_errors;
            std::string own;
            return redirect(walk, std::string(location.error_targets[i].value(walk.values, own)));
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

/// The captures of the regular expressions around a location, from the outermost on.
void Router::set_captures(const Location& location, Walk& walk)
{
    if (location.parent != nullptr) {
        set_captures(*location.parent, walk);
    }
    if (location.regex) {
        location.regex->match(walk.values.rewritten().path, walk.values);
    }
}

Router::Next Router::find_location_of(Walk& walk) const
{
    const Location& top = walk.server.top;
    const std::string& path = walk.values.rewritten().path;
    walk.location = facts_.path == nullptr ? &last_resort(top) : find_location(top, path);
    if (walk.location == nullptr) {
        return walk.end(Reached::rewrite);
    }
    if (facts_.path != nullptr) {
        set_captures(*walk.location, walk);
    }
    const bool internal = walk.location->own.internal && !walk.values.rewritten().redirected;
    if (!internal && !walk.is_cut
        && facts_.body_is_longer(walk.values, walk.location->own.most_body)) {
        walk.is_cut = true;
        walk.end(Reached::too_large);
        return error_page(walk, 413);
    }
    return in_location(walk);
}

/// Whether a server with the same names answered the request.
bool Router::of_other_server(Values& values, const ServerConf& server) const
{
    if (server.only_tls && facts_.scheme != nullptr) {
        return facts_.scheme->value(values) == "http";
    }
    const int status = server.redirector == nullptr ? 200 : facts_.status_of(values);
    const bool redirects = status == 0 || status == 301 || status == 302 || status == 303
        || status == 307 || status == 308;
    return redirects && !facts_.asked_upstream(values)
        && values.in_doubt(server.redirector, "", status != 0);
}

bool Router::may_doubt(const ServerConf& server) const
{
    bool found = server.redirector != nullptr && !(server.only_tls && facts_.scheme != nullptr);
    for_each_location(server.top, [&](const Location& one) {
        const Surroundings& own = one.own;
        const bool asks = one.program.asks_for_files()
            || ((!one.plan || one.plan->may_not_apply())
                && (one.try_files != nullptr || own.index != nullptr
                    || own.error_pages != nullptr));
        found = found || asks;
    });
    return found;
}

Route Router::find(Values& values, const ServerConf& server, LimitReqs& limit_reqs) const
{
    Values::Rewritten& state = values.rewritten();
    state.server_name =
        server.names.empty() ? std::string_view() : std::string_view(server.names.front());
    Walk walk{ values, server, limit_reqs };
    if (facts_.path != nullptr) {
        state.path = facts_.path->value(values);
        if (state.path.empty()) {
            walk.end(Reached::malformed);
            return walk.route;
        }
    }
    if (of_other_server(values, server)) {
        walk.end(Reached::rewrite);
        return walk.route;
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

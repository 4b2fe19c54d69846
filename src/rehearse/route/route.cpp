#include "rehearse/route/route.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

/// Whether the status does not tell limit_conn's refusals from those of the module.
bool has_one_status(const Location& location)
{
    const Surroundings& own = location.own;
    return location.plan && own.may_refuse_connections()
        && own.limit_conn_status == own.ratelimit_status;
}

}  // namespace

Walk::Next Router::rewritten(Walk& walk, const RewriteProgram& program) const
{
    using End = RewriteProgram::Result::End;
    if (program.empty()) {
        return Next::stay;
    }
    const auto result = program.run(walk.values);
    if (result.end == End::answered) {
        walk.end(Reached::rewrite);
        return walk.error_page(result.status);
    }
    return result.end == End::elsewhere ? walk.changed(Next::find) : Next::stay;
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
    const int status =
        asks && !facts_.answered_by_upstream(walk.values) ? facts_.status_of(walk.values) : 0;
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
    if (!plan.empty() && !walk.is_counted && walk.limit_reqs != nullptr) {
        const auto time = walk.values.record().time;
        const auto result = walk.values.is_for_bounds()
            ? walk.limit_reqs->follow(plan, walk.values, time)
            : walk.limit_reqs->decide(plan, walk.values, time);
        walk.is_counted = result != LimitReqs::Result::unlimited;
        if (!by_status && walk.is_counted) {
            walk.route.limit_req = own.limit_req_dry_run ? LimitReqs::Result::passes : result;
        }
        if (walk.route.limit_req == LimitReqs::Result::refused) {
            return Reached::limit_req;
        }
    }
    if (!plan.empty() && walk.limit_reqs == nullptr && facts_.may_be_refused(walk.values)) {
        walk.may_differ = true;
    }
    const bool may_be = by_status || own.may_refuse_connections();
    if (!may_be || facts_.answered_by_upstream(walk.values)) {
        return Reached::none;
    }
    const int status = facts_.status_of(walk.values);
    if (by_status && !own.limit_req_dry_run && status == own.limit_req_status) {
        return Reached::limit_req;
    }
    if (!own.may_refuse_connections() || status != own.limit_conn_status) {
        return Reached::none;
    }
    return has_one_status(location) && !walk.values.in_doubt(own.limit_conn, "limit_conn", false)
        ? Reached::none
        : Reached::limit_req;
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
Walk::Next Router::in_location(Walk& walk) const
{
    const Location& location = *walk.location;
    if (location.own.internal && !walk.values.rewritten().redirected) {
        walk.end(Reached::internal);
        return walk.error_page(404);
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
        return walk.error_page(status);
    }
    if (location.plan && location.plan->applies(walk.values)) {
        return walk.limited();
    }
    walk.end(Reached::none);
    return walk.content();
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

Walk::Next Router::find_location_of(Walk& walk) const
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
    if (!internal && !walk.is_body_checked
        && facts_.body_is_longer(walk.values, walk.location->own.most_body)) {
        walk.is_body_checked = true;
        walk.end(Reached::too_large);
        return walk.error_page(413);
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
        const bool by_prefix =
            one.kind == Location::Kind::prefix || one.kind == Location::Kind::prefix_first;
        const std::string folder = by_prefix && one.text.ends_with('/') ? one.text : "/";
        const bool has_index = own.index != nullptr
            || find_location(server.top, folder + own.index_files.front()) != &one;
        const bool asks = one.program.asks_for_files() || has_one_status(one)
            || ((!one.plan || one.plan->may_not_apply())
                && (one.try_files != nullptr || (one.handler == nullptr && has_index)
                    || own.error_pages != nullptr));
        found = found || asks;
    });
    return found;
}

Walk Router::follow(Values& values, const ServerConf& server, LimitReqs* limit_reqs) const
{
    Walk walk{ values, server, facts_, limit_reqs };
    Values::Rewritten& state = values.rewritten();
    state.server_name =
        server.names.empty() ? std::string_view() : std::string_view(server.names.front());
    if (facts_.path != nullptr) {
        state.path = facts_.path->value(values);
        if (state.path.empty()) {
            walk.end(Reached::malformed);
            return walk;
        }
    }
    if (of_other_server(values, server)) {
        walk.end(Reached::rewrite);
        walk.may_differ = true;
        return walk;
    }
    walk.first_questions = values.questions();
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
    return walk;
}

Route Router::find(Values& values, const ServerConf& server, LimitReqs& limit_reqs) const
{
    return follow(values, server, &limit_reqs).route;
}

unsigned Router::differences(Values& values, const ServerConf& server) const
{
    return follow(values, server, nullptr).differences();
}

}  // namespace ratelimit::rehearse

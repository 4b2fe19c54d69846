#include "rehearse/route/route.h"

#include <algorithm>
#include <array>

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

Walk::Next Router::rewritten(Walk& walk, const RewriteProgram& program)
{
    using End = RewriteProgram::Result::End;
    if (program.empty()) {
        return Next::stay;
    }
    const auto result = program.run(walk.values);
    if (result.end == End::answered) {
        walk.end(Reached::rewrite);
        return result.has_text ? walk.ends_with(result.status) : walk.error_page(result.status);
    }
    return result.end == End::elsewhere ? walk.changed(Next::find) : Next::stay;
}

/// nginx answers with this status instead of going on.
Walk::Next Router::refuse(Walk& walk, Reached reached, int code)
{
    walk.end(reached);
    return walk.error_page(code);
}

/// What nginx answers by itself before it looks for a location. Not known: whether an upstream has
/// answered with that, if the log does not tell of upstreams.
Walk::Next Router::unreadable(Walk& walk) const
{
    constexpr std::array codes = { 400, 408, 414, 494, 495, 496, 497, 501, 505 };
    const bool likely = facts_.upstream != nullptr || !walk.server.has_upstreams;
    if (facts_.path != nullptr && walk.values.rewritten().path.empty()) {
        return refuse(walk, Reached::malformed, facts_.status_of(walk.values));
    }
    for (const int code : codes) {
        if (walk.answered(code, nullptr, "unreadable", likely)) {
            return refuse(walk, Reached::malformed, code);
        }
    }
    return Next::stay;
}

/// allow, deny and auth_*.
Walk::Next Router::access(Walk& walk) const
{
    const Location& location = *walk.location;
    const bool excepted = location.limit_except && facts_.method != nullptr
        && location.limit_except->applies_to(facts_.method->value(walk.values));
    const Surroundings& around = excepted ? location.limit_except->inner : location.own;
    if (around.rules != nullptr && facts_.address != nullptr) {
        const auto verdict = allows(*around.rules, facts_.address->value(walk.values));
        const bool asks = around.auth_basic != nullptr || around.auth_request != nullptr;
        if (verdict == true && around.any && asks) {
            return Next::stay;
        }
        if (verdict == false && !(around.any && asks)) {
            return refuse(walk, Reached::denied, 403);
        }
    }
    if (around.auth_basic != nullptr && walk.answered(401, around.auth_basic, "auth_basic")) {
        return refuse(walk, Reached::authentication, 401);
    }
    // A client may leave (499) while the subrequest lasts, or later.
    constexpr std::array codes = { 401, 403, 499, 500 };
    for (const int code : codes) {
        const bool likely = code != 499 || facts_.upstream != nullptr;
        if (around.auth_request != nullptr
            && walk.answered(code, around.auth_request, "auth_request", likely)) {
            return refuse(walk, Reached::authentication, code);
        }
    }
    return Next::stay;
}

/// nginx's own limits.
Walk::Next Router::limit_req(Walk& walk) const
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
            return refuse(walk, Reached::limit_req, own.limit_req_status);
        }
    }
    const bool as_then = by_status || (!plan.empty() && walk.limit_reqs == nullptr);
    if (as_then && !own.limit_req_dry_run
        && walk.answered(own.limit_req_status, nullptr, "limit_req")) {
        return refuse(walk, Reached::limit_req, own.limit_req_status);
    }
    if (own.may_refuse_connections()
        && walk.answered(
            own.limit_conn_status, own.limit_conn, "limit_conn", !has_one_status(location))) {
        return refuse(walk, Reached::limit_req, own.limit_conn_status);
    }
    return Next::stay;
}

/// The phases of the location that was found.
Walk::Next Router::in_location(Walk& walk) const
{
    const Location& location = *walk.location;
    if (location.own.internal && !walk.values.rewritten().redirected) {
        return refuse(walk, Reached::internal, 404);
    }
    Next next = Next::stay;
    if (location.kind != Location::Kind::server) {  // the server's rewrites ran before
        next = rewritten(walk, location.program);
    }
    if (next == Next::stay) {
        next = limit_req(walk);
    }
    const bool preaccess = location.own.preaccess;
    if (next == Next::stay && preaccess) {
        next = limits(walk);
    }
    if (next == Next::stay) {
        next = access(walk);
    }
    if (next == Next::stay && !preaccess) {
        next = limits(walk);
    }
    return next == Next::stay ? walk.content() : next;
}

Walk::Next Router::limits(Walk& walk)
{
    const Location& location = *walk.location;
    if (location.plan && location.plan->applies(walk.values)) {
        return walk.limited();
    }
    walk.end(Reached::none);
    return Next::stay;
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
        return refuse(walk, Reached::too_large, 413);
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

Walk Router::follow(Values& values, const ServerConf& server, LimitReqs* limit_reqs) const
{
    Walk walk{ values, server, facts_, limit_reqs };
    Values::Rewritten& state = values.rewritten();
    state.server_name =
        server.names.empty() ? std::string_view() : std::string_view(server.names.front());
    if (facts_.path != nullptr) {
        state.path = facts_.path->value(values);
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
    Next next = unreadable(walk);
    next = next == Next::stay ? Next::server : next;
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

}  // namespace ratelimit::rehearse

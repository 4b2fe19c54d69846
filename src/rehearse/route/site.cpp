#include "rehearse/route/site.h"

#include "limit/variable_text.h"
#include "rehearse/route/route_setup.h"
#include "rehearse/values/map_sources.h"
#include "rehearse/values/request_line.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ratelimit::rehearse {

namespace {

bool has_ratelimits(const Location& location) noexcept
{
    return !location.answers && location.own.limits != nullptr && !location.own.limits->empty();
}

bool has_limit_reqs(const Location& location) noexcept
{
    return !location.answers && location.own.limit_reqs != nullptr;
}

bool has_limits(const Location& location) noexcept
{
    return has_ratelimits(location) || has_limit_reqs(location);
}

/// A server that answers all requests by itself, for instance with a redirect, has none.
bool has_limits(const ServerConf& server)
{
    if (server.top.answers) {
        return false;
    }
    bool any = false;
    for_each_location(server.top, [&any](const Location& one) { any = any || has_limits(one); });
    return any;
}

/// The limits that a location has or inherits: those of the module and of nginx; null: none.
using LimitSet = std::pair<const void*, const void*>;

/// The different sets of limits that requests of a server can meet.
std::set<LimitSet> limit_sets(const ServerConf& server)
{
    std::set<LimitSet> sets;
    if (server.top.answers) {
        return { LimitSet{} };
    }
    const bool top_is_met = &last_resort(server.top) == &server.top;
    for_each_location(server.top, [&](const Location& one) {
        const bool is_named = one.kind == Location::Kind::named && !has_limits(one);
        if (!is_named && (top_is_met || &one != &server.top)) {
            sets.insert({ has_ratelimits(one) ? one.own.limits.get() : nullptr,
                          has_limit_reqs(one) ? one.own.limit_reqs.get() : nullptr });
        }
    });
    return sets;
}

PlannedLimit planned(const LimitConf& limit, const ZoneConf& zone, Scope& scope)
{
    const auto compiled = [&scope](const std::string& text, const Place& place) {
        return text.empty() ? std::nullopt : std::optional(scope.compile(text, place));
    };
    return { .conf = &limit,
             .zone = &zone,
             .key = scope.compile(zone.key, zone.place),
             .rate = compiled(zone.variable_rate() ? zone.rate_text : "", zone.place),
             .start = compiled(zone.start_text, zone.place),
             .cost = compiled(limit.cost_text, limit.place),
             .charge = compiled(limit.charge_text, limit.place),
             .reserve = compiled(limit.reserve_text, limit.place) };
}

}  // namespace

Site::Site(
    HttpConf& conf, Variables& variables, const RequestFacts& facts, const std::string& server)
    : conf_(conf),
      variables_(variables),
      facts_(facts),
      scope_(variables, facts),
      router_(facts),
      by_name_(!server.empty())
{
    for (const auto& one : conf.servers) {
        one->has_limits = has_limits(*one);
        for_each_location(one->top, [&one](const Location& location) {
            one->has_upstreams = one->has_upstreams || location.asks_upstream();
        });
    }
    only_ = only_server(server);
    choose_by_host();
    check_path();
    compile();
}

/// Whether the log tells the location of a request, if that matters.
void Site::check_path() const
{
    const bool by_path =
        std::any_of(conf_.servers.begin(), conf_.servers.end(), [this](const auto& one) {
            return (only_ == nullptr || only_ == one.get()) && limit_sets(*one).size() > 1;
        });
    if (by_path && facts_.path == nullptr) {
        throw InputError(
            "locations have different limits, and " + variables_.log_title()
            + " has no $request, $request_uri or $uri to tell the location of a request");
    }
}

void Site::compile()
{
    std::vector<ServerConf*> met;
    for (const auto& one : conf_.servers) {
        if ((only_ == nullptr || only_ == one.get()) && one->has_limits) {
            met.push_back(one.get());
            one->redirector = redirects_to(conf_, *one, only_ == nullptr || by_name_);
            declare_routes(*one, scope_);
        }
    }
    for (ServerConf* one : met) {
        for_each_location(one->top, [&](Location& location) {
            if (has_ratelimits(location)) {
                compile_limits(location);
            }
            if (has_limit_reqs(location)) {
                compile_limit_reqs(location);
            }
        });
    }
    // Compiled directives may need further variables, which other directives set.
    check_exactness();
    const auto first_warnings = warnings_;
    for (std::size_t needed = 0;; needed = scope_.needed_count()) {
        warnings_ = first_warnings;
        for (ServerConf* one : met) {
            compile_routes(*one, scope_, facts_, warnings_);
        }
        if (scope_.needed_count() == needed) {
            break;
        }
    }
    names_.compile(scope_);
    if (host_ != nullptr && captured_ == nullptr && variables_.is_logged("server_name")
        && names_.has_captures()) {
        warnings_.emplace_back(
            "captures of server_name are empty, because the log has no $host and no $http_host");
    }
}

/// Finds errors that nginx -t cannot see: a map that reads a variable of the response or has
/// malformed rates.
void Site::check_maps(const LimitConf& limit, const ZoneConf& zone)
{
    const Definitions& definitions = variables_.definitions();
    const auto check = [&](const std::string& name, const std::string& value, const Place& place,
                           const std::string& title, std::string_view expected) {
        if (is_late_by_map(value, definitions)) {
            fail_at(place, WordError{ name + value, expected }.message(title));
        }
    };
    check("", zone.key, zone.place, "ratelimit_zone", late_value);
    check("rate=", zone.rate_text, zone.place, "ratelimit_zone", late_value);
    check("cost=", limit.cost_text, limit.place, limit.title(), late_cost);
    check("reserve=", limit.reserve_text, limit.place, limit.title(), late_value);
    for (const Directive* line : malformed_rates(zone.rate_text, definitions)) {
        std::string text = "the rate \"" + line->args.front() + "\" of \"ratelimit_zone\" \""
            + zone.name + "\" in " + line->place.text() + " is malformed: the fail mode decides";
        if (std::find(warnings_.begin(), warnings_.end(), text) == warnings_.end()) {
            warnings_.push_back(std::move(text));
        }
    }
}

/// Compiles the limits of a location.
void Site::compile_limits(Location& location)
{
    Plan plan;
    plan.fails_closed = location.own.closed && !location.own.dry_run;
    for (const std::size_t number : *location.own.limits) {
        const LimitConf& limit = conf_.limits[number];
        check_duration(conf_.zones[limit.zone]);
        check_maps(limit, conf_.zones[limit.zone]);
        plan.limits.push_back(planned(limit, conf_.zones[limit.zone], scope_));
    }
    location.plan = std::move(plan);
}

/// Compiles the `limit_req` of a location. If a key cannot be computed, the status tells what they
/// refused.
void Site::compile_limit_reqs(Location& location)
{
    LimitReqPlan plan;
    try {
        for (const std::size_t number : *location.own.limit_reqs) {
            const LimitReqZone& zone = conf_.limit_req_zones[conf_.limit_reqs[number].zone];
            plan.push_back({ &conf_.limit_reqs[number], scope_.compile(zone.key, zone.place) });
        }
        limit_req_ = plan.front().conf;
        location.limit_req_plan = std::move(plan);
    } catch (const InputError& error) {
        location.own.limit_req = true;
        for (const std::size_t number : *location.own.limit_reqs) {
            LimitReqConf& limit = conf_.limit_reqs[number];
            if (std::exchange(limit.followed, false)) {
                warnings_.push_back(
                    "\"limit_req\" in " + limit.place.text() + ": " + error.what()
                    + "; what it refused is seen in $status");
            }
        }
    }
}

void Site::check_duration(const ZoneConf& zone)
{
    if (!counts_at_one_time(zone.policy.algorithm)) {
        return;
    }
    if (!variables_.is_logged(duration_variable)) {
        fail_at(
            zone.place,
            "\"concurrency=\" needs the variable \"$request_time\", which is not in "
                + variables_.log_title() + ",");
    }
    has_concurrency_ = true;
}

/// limit_req counts milliseconds.
void Site::check_exactness()
{
    if (limit_req_ == nullptr || variables_.is_logged("msec")) {
        return;
    }
    std::string text = "\"limit_req\" in " + limit_req_->place.text()
        + " counts milliseconds, and the log has no $msec: with a small burst it refuses more here "
          "than in nginx";
    if (!conf_.limits.empty()) {
        router_.trust_status();
        text += "; which requests went on to other limits is seen in $status";
    }
    warnings_.push_back(std::move(text));
}

/// The server of all requests; null: they are of several, and the log tells of which.
const ServerConf* Site::only_server(const std::string& server) const
{
    if (!server.empty()) {
        const ServerConf* found = nullptr;
        for (const auto& one : conf_.servers) {
            const auto& names = one->names;
            const bool named = std::find(names.begin(), names.end(), server) != names.end()
                || one->title() == server;
            if (named && (found == nullptr || (!found->has_limits && one->has_limits))) {
                found = one.get();
            }
        }
        if (found == nullptr) {
            throw InputError("no server is named \"" + server + "\"");
        }
        return found;
    }
    if (conf_.servers.size() == 1) {
        return conf_.servers.front().get();
    }
    if (variables_.first_logged({ "server_name", "host", "http_host" }) != nullptr) {
        return nullptr;
    }
    const ServerConf* found = nullptr;
    std::string names;
    std::size_t count = 0;
    std::set<LimitSet> sets;
    for (const auto& one : conf_.servers) {
        if (one->has_limits) {
            found = one.get();
            ++count;
            names += (names.empty() ? "" : ", ") + one->title();
            sets.merge(limit_sets(*one));
        }
    }
    if (count > 1 && sets.size() > 1) {
        throw InputError(
            "several servers have limits (" + names + "), and " + variables_.log_title()
            + " has no $host, $http_host or $server_name: choose one with --server");
    }
    return found != nullptr ? found : conf_.servers.front().get();
}

void Site::choose_by_host()
{
    host_ = variables_.logged("server_name");
    captured_ = host_ == nullptr ? nullptr : facts_.host;
    if (host_ == nullptr) {
        host_ = facts_.host;
    }
    if (host_ == nullptr) {
        return;  // there is one server
    }
    // Of servers with the same name, one with limits is meant. Patterns are tried in their order.
    for (const bool first : { true, false }) {
        for (const auto& one : conf_.servers) {
            const auto names = one->names.empty() ? std::vector<std::string>{ "" } : one->names;
            for (const std::string& name : names) {
                if ((name.starts_with('~') || one->has_limits) == first) {
                    names_.add(name, *one, one->top.directive->place);
                }
            }
        }
    }
    const auto found =
        std::find_if(conf_.servers.begin(), conf_.servers.end(), [](const auto& one) {
            return one->is_default;
        });
    names_.set_default(found == conf_.servers.end() ? *conf_.servers.front() : **found);
}

const ServerConf* Site::server_of(Values& values) const
{
    // Also where all requests are of one server, its name may have captures.
    if (host_ == nullptr || (only_ != nullptr && !names_.has_patterns())) {
        return only_;
    }
    std::string own;
    const std::string_view text = host_->value(values);
    const bool is_pattern = text.starts_with('~');  // a $server_name
    const ServerConf* found = names_.find(is_pattern ? text : host_of(text, own), values);
    if (captured_ != nullptr && names_.has_patterns()) {
        // nginx logs the first name of the server, the host may have another one.
        names_.find(captured_->value(values), values, found);
    }
    return only_ != nullptr ? only_ : found;
}

Site::Ways Site::ways(Values& values) const
{
    constexpr int most_courses = 100;
    std::vector<Values::Answers> best;
    unsigned least = 0;
    int courses = 0;
    Route route;
    values.begin_courses({});
    do {
        const ServerConf* server = server_of(values);
        unsigned differences = 0;
        if (server->has_limits) {
            const Walk walk = router_.follow(values, *server, nullptr);
            differences = walk.differences();
            route = walk.route;
        }
        if (best.empty() || differences < least) {
            best.clear();
            least = differences;
        }
        if (differences == least) {
            best.push_back(values.doubts());
        }
    } while (++courses < most_courses && values.next_course());
    const bool only = values.questions() == 0 && conf_.limit_reqs.empty();
    return { std::move(best), least < Walk::other_path,
             only ? std::optional(route) : std::nullopt };
}

Route Site::find(Values& values, LimitReqs& limit_reqs) const
{
    const ServerConf* server = server_of(values);
    return server->has_limits ? router_.follow(values, *server, &limit_reqs).route : Route{};
}

}  // namespace ratelimit::rehearse

#include "rehearse/route/http_conf.h"

#include "limit/rate_text.h"
#include "rehearse/conf/directives.h"

#include <utility>

namespace ratelimit::rehearse {

namespace {

using Directives = std::vector<const Directive*>;

NamedFormat format_of(const Directive& directive)
{
    NamedFormat out{ directive.args[0], {} };
    for (std::size_t i = 1; i < directive.args.size(); ++i) {
        const std::string& word = directive.args[i];
        if (i == 1 && word.starts_with("escape=")) {
            out.escape = word == "escape=json" ? Escape::json
                : word == "escape=none"        ? Escape::none
                                               : Escape::standard;
        } else {
            out.text += word;
        }
    }
    return out;
}

/// The directives of http {}.
Directives http_level(const std::vector<Directive>& all)
{
    Directives out;
    for (const Directive& one : all) {
        if (one.name == "http" && one.has_block) {
            for (const Directive& inner : one.block) {
                out.push_back(&inner);
            }
        } else {
            out.push_back(&one);
        }
    }
    return out;
}

class Reader {
public:
    explicit Reader(HttpConf& conf) : conf_(conf) {}

    void read()
    {
        check_names(conf_.text);
        const Directives all = http_level(conf_.text);
        for (const Directive* one : all) {
            define(*one);
        }
        const Surroundings http = level(all, {}, "http");
        Directives loose;  // locations outside of any server
        for (const Directive* one : all) {
            if (one->name == "server" && one->has_block) {
                read_server(one->inner(), *one, http);
            } else if (one->name == "location" && one->has_block) {
                loose.push_back(one);
            }
        }
        if (!loose.empty() || conf_.servers.empty()) {
            for (const Directive* one : all) {
                if (is_rewriting(*one) || one->name == "try_files") {
                    loose.push_back(one);
                }
            }
            static const Directive nowhere{ "server", {}, {}, true, { "the configuration", 1 } };
            read_server(loose, nowhere, http);
        }
    }

private:
    /// A name that the module does not know is likely a typing error, as of "ratelimits".
    void check_names(const std::vector<Directive>& all)
    {
        for (const Directive& one : all) {
            if (one.name.starts_with("ratelimit") && !is_of_module(one.name)) {
                conf_.warnings.push_back(
                    "unknown directive \"" + one.name + "\" in " + one.place.text());
            }
            check_names(one.block);
        }
    }

    /// Maps, geos, zones and formats.
    void define(const Directive& one)
    {
        Definitions& known = conf_.definitions;
        if (one.name == "map" || one.name == "geo" || one.name == "split_clients") {
            const bool good = one.has_block && !one.args.empty() && one.args.size() <= 2
                && (one.name == "geo" || one.args.size() == 2) && one.args.back().starts_with('$');
            if (!good) {
                fail_at(one.place, "\"" + one.name + "\" must have a variable and a block");
            }
            known.blocks[one.args.back().substr(1)] = &one;
        } else if (one.name == "merge_slashes") {
            known.merge_slashes = one.args.size() != 1 || one.args[0] != "off";
        } else if (one.name == "ratelimit_ipv6_prefix") {
            const auto bits =
                one.args.size() == 1 ? parse_number(one.args[0], 1, 128) : std::nullopt;
            if (!bits) {
                fail_at(one.place, "\"ratelimit_ipv6_prefix\" must have a number from 1 to 128");
            }
            known.ipv6_prefix = static_cast<unsigned>(*bits);
        } else if (one.name == "ratelimit_zone") {
            ZoneConf zone = read_zone(one);
            for (const ZoneConf& other : conf_.zones) {
                if (other.name == zone.name) {
                    fail_at(one.place, "duplicate \"ratelimit_zone\" \"" + zone.name + "\"");
                }
            }
            conf_.zones.push_back(std::move(zone));
        } else if (one.name == "limit_req_zone") {
            conf_.limit_req_zones.push_back(read_limit_req_zone(one));
        } else if (one.name == "log_format" && one.args.size() >= 2) {
            conf_.formats.push_back(format_of(one));
        }
    }

    /// The settings that a level hands down.
    Surroundings level(const Directives& all, const Surroundings& outer, const std::string& title)
    {
        std::shared_ptr<std::vector<std::size_t>> limits;
        bool off = false;
        bool api = false;  // has only limits of its own
        Surroundings own = outer.inner(all);
        for (const Directive* one : all) {
            api = api || one->name == "ratelimit_api";
            if (is_not_followed(*one)) {
                conf_.warnings.push_back(
                    "\"" + one->name + "\" is not followed in " + one->place.text());
            }
            if (one->name != "ratelimit") {
                continue;
            }
            const bool is_off = one->args.size() == 1 && one->args[0] == "off";
            if (off || (is_off && limits != nullptr)) {
                fail_at(
                    one->place,
                    "\"ratelimit off\" excludes other \"ratelimit\" directives at the same level");
            }
            off = is_off;
            if (limits == nullptr) {
                limits = std::make_shared<std::vector<std::size_t>>();
            }
            if (!is_off) {
                add_limit(*limits, *one, title);
            }
        }
        if (limits != nullptr || api) {
            own.limits = limits;
        }
        read_limit_reqs(all, own, title);
        return own;
    }

    /// nginx's own limits, which only a level that has none inherits.
    void read_limit_reqs(const Directives& all, Surroundings& level, const std::string& title)
    {
        std::vector<LimitReqConf> limits;
        bool known = true;
        for (const Directive* one : all) {
            auto limit = one->name == "limit_req" ? read_limit_req(*one, conf_.limit_req_zones)
                                                  : std::nullopt;
            if (limit) {
                limits.push_back(std::move(*limit));
            } else if (one->name == "limit_req") {
                known = false;
                conf_.warnings.push_back(
                    "\"limit_req\" in " + one->place.text()
                    + ": there is no limit_req_zone of its name; what it refused is seen in "
                      "$status");
            }
        }
        if (known && limits.empty()) {
            return;
        }
        level.limit_req = !known;
        level.limit_reqs = nullptr;
        if (!known) {
            return;
        }
        auto numbers = std::make_shared<std::vector<std::size_t>>();
        for (LimitReqConf& limit : limits) {
            limit.dry_run = level.limit_req_dry_run;
            add(conf_.limit_reqs, std::move(limit), title, *numbers);
        }
        level.limit_reqs = std::move(numbers);
    }

    /// Adds a limit to all of the configuration, and its number to those of its level.
    template <class Limit>
    void add(
        std::vector<Limit>& all, Limit limit, const std::string& title,
        std::vector<std::size_t>& level) const
    {
        limit.number = all.size();
        limit.location = title;
        if (title != "http") {
            limit.server = conf_.servers.size();
        }
        level.push_back(limit.number);
        all.push_back(std::move(limit));
    }

    void add_limit(
        std::vector<std::size_t>& limits, const Directive& directive, const std::string& title)
    {
        LimitConf limit = read_limit(directive, conf_.zones);
        for (const std::size_t other : limits) {
            if (conf_.limits[other].zone == limit.zone) {
                fail_at(
                    directive.place, "duplicate \"ratelimit\" of zone \"" + limit.zone_name + "\"");
            }
        }
        for (const LimitConf& other : conf_.limits) {
            limit.number_in_zone += other.zone == limit.zone ? 1 : 0;
        }
        add(conf_.limits, std::move(limit), title, limits);
    }

    void read_server(const Directives& all, const Directive& directive, const Surroundings& http)
    {
        auto server = std::make_unique<ServerConf>();
        bool listens = false;
        for (const Directive* one : all) {
            if (one->name == "server_name") {
                server->names.insert(server->names.end(), one->args.begin(), one->args.end());
            } else if (one->name == "listen" && !one->args.empty()) {
                bool tls = false;
                for (const std::string& word : one->args) {
                    tls = tls || word == "ssl" || word == "quic";
                    server->is_default =
                        server->is_default || word == "default_server" || word == "default";
                }
                server->only_tls = tls && (server->only_tls || !listens);
                listens = true;
            }
        }
        for (const Directive* one : all) {
            // nginx reads it before the server is known: the default server's decides.
            if (one->name == "merge_slashes" && (server->is_default || conf_.servers.empty())) {
                define(*one);
            }
        }
        server->top.directive = &directive;
        read_level(server->top, all, http, "server");
        conf_.servers.push_back(std::move(server));
    }

    void read_level(
        Location& location, const Directives& all, const Surroundings& outer,
        const std::string& title)
    {
        location.own = level(all, outer, title);
        for (const Directive* one : all) {
            if (is_rewriting(*one)) {
                location.answers =
                    location.answers || (one->name == "return" && !may_leave(location.rewrites));
                location.rewrites.push_back(one);
            } else if (one->name == "location" && one->has_block) {
                read_location(location, *one);
            } else if (one->name == "try_files" && one->args.size() >= 2) {
                location.try_files = one;
            } else if (one->name == "limit_except" && one->has_block) {
                location.limit_except = LimitExcept{ one->args, location.own.inner(one->inner()) };
            } else if (is_handler(*one)) {
                location.handler = one;
            }
        }
    }

    void read_location(Location& parent, const Directive& directive)
    {
        auto location = std::make_unique<Location>();
        set_pattern(*location, directive);
        location->directive = &directive;
        location->parent = &parent;
        read_level(*location, directive.inner(), parent.own, location->title());
        parent.children.push_back(std::move(location));
    }

    HttpConf& conf_;
};

}  // namespace

std::string ServerConf::title() const
{
    if (!names.empty() && !names.front().empty()) {
        return names.front();
    }
    const Place& place = top.directive->place;
    return place.file == "the configuration" ? "" : place.text();
}

std::unique_ptr<HttpConf> read_http_conf(std::vector<Directive> text)
{
    auto conf = std::make_unique<HttpConf>();
    conf->text = std::move(text);
    Reader(*conf).read();
    return conf;
}

}  // namespace ratelimit::rehearse

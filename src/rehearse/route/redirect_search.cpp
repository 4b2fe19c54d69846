#include "rehearse/route/redirect_search.h"

#include "limit/rate_text.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

/// The status of a redirect; 0: it is none.
int redirect_of(const Directive& one)
{
    constexpr int permanent = 301;
    constexpr int temporary = 302;
    if (one.name == "return" && !one.args.empty()) {
        const auto status = parse_number(one.args[0], 0, 999);
        const bool redirects = !status || (*status > 300 && *status < 309 && *status != 304);
        return redirects ? static_cast<int>(status.value_or(temporary)) : 0;
    }
    if (one.name != "rewrite" || one.args.size() < 2) {
        return 0;
    }
    const bool leaves = one.args[1].starts_with("http") || one.args[1].starts_with("$scheme");
    return one.args.back() == "permanent"         ? permanent
        : leaves || one.args.back() == "redirect" ? temporary
                                                  : 0;
}

void add_redirects(const Directive& one, std::vector<int>& out)
{
    if (const int status = redirect_of(one); status != 0) {
        out.push_back(status);
    }
    for (const Directive& inner : one.block) {
        if (one.name == "if") {
            add_redirects(inner, out);
        }
    }
}

std::vector<int> redirects_of(const ServerConf& server)
{
    std::vector<int> out;
    for_each_location(server.top, [&out](const Location& location) {
        for (const Directive* one : location.rewrites) {
            add_redirects(*one, out);
        }
    });
    return out;
}

/// "443 ssl", "[::]:443", "80": only the ports matter.
std::string port_of(const Directive& listen)
{
    const std::string& address = listen.args[0];
    const auto colon = address.rfind(':');
    const bool only_address = colon == address.npos ? !parse_number(address, 1, 65'535).has_value()
                                                    : address.ends_with(']');
    return only_address ? "80" : address.substr(colon == address.npos ? 0 : colon + 1);
}

std::vector<std::string> ports_of(const ServerConf& server)
{
    std::vector<std::string> out;
    for (const Directive* one : server.listens) {
        out.push_back(port_of(*one));
    }
    if (out.empty()) {
        out.emplace_back("80");
    }
    return out;
}

bool is_tls(const Directive& listen)
{
    return std::any_of(listen.args.begin(), listen.args.end(), [](const std::string& word) {
        return word == "ssl" || word == "quic";
    });
}

bool has_common(const std::vector<std::string>& left, const std::vector<std::string>& right)
{
    return std::any_of(left.begin(), left.end(), [&right](const std::string& one) {
        return std::find(right.begin(), right.end(), one) != right.end();
    });
}

/// Whether it answers requests for a name that no server of its ports has.
bool is_default(const HttpConf& conf, const ServerConf& server)
{
    const auto first =
        std::find_if(conf.servers.begin(), conf.servers.end(), [&](const auto& other) {
            return has_common(ports_of(*other), ports_of(server));
        });
    return server.is_default || first->get() == &server;
}

bool is_logged(const ServerConf& server)
{
    return std::none_of(
        server.top.directive->block.begin(), server.top.directive->block.end(),
        [](const Directive& one) {
            return one.name == "access_log" && !one.args.empty() && one.args[0] == "off";
        });
}

}  // namespace

RedirectServer redirects_beside(const HttpConf& conf, const ServerConf& server, bool by_name)
{
    const bool only_tls = !server.listens.empty()
        && std::all_of(server.listens.begin(), server.listens.end(), [](const Directive* one) {
               return is_tls(*one);
           });
    RedirectServer out;
    bool plain = only_tls;
    for (const auto& one : conf.servers) {
        const bool beside = !by_name
            || (!has_common(ports_of(*one), ports_of(server))
                && (has_common(one->names, server.names) || is_default(conf, *one)));
        if (one.get() == &server || one->has_limits || !beside || !is_logged(*one)) {
            continue;
        }
        const auto statuses = redirects_of(*one);
        if (statuses.empty()) {
            continue;
        }
        out.directive = out.directive == nullptr ? one->top.directive : out.directive;
        out.statuses.insert(out.statuses.end(), statuses.begin(), statuses.end());
        plain = plain && std::none_of(one->listens.begin(), one->listens.end(), [](const auto* it) {
                    return is_tls(*it);
                });
    }
    out.by_scheme = plain;
    return out;
}

}  // namespace ratelimit::rehearse

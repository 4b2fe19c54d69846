#include "nginx/resolvers.h"

#include "nginx/text.h"

#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

namespace ratelimit::nginx {

namespace {

constexpr const char* resolv_conf = "/etc/resolv.conf";
constexpr std::size_t most_servers = 3;  // as the C library

using Words = std::vector<std::string>;

/// The servers of a resolver, as its directive names them, and what else this has. nginx makes one
/// without servers where the directive is missing. Empty also for Angie, which keeps them in a
/// list.
template <class Resolver>
Words words_of(const Resolver& resolver)
{
    Words words;
    if constexpr (!std::is_pointer_v<decltype(resolver.connections)>) {
        const auto* servers =
            static_cast<const ngx_resolver_connection_t*>(resolver.connections.elts);
        for (ngx_uint_t i = 0; i < resolver.connections.nelts; ++i) {
            words.emplace_back(view(servers[i].server));
        }
        if (!words.empty() && resolver.valid != 0) {
            words.push_back("valid=" + std::to_string(resolver.valid) + "s");
        }
    }
    return words;
}

template <class Resolver>
bool has_servers(const Resolver& resolver)
{
    if constexpr (std::is_pointer_v<decltype(resolver.connections)>) {
        return resolver.connections != nullptr;
    } else {
        return resolver.connections.nelts != 0;
    }
}

/// The addresses of name servers in /etc/resolv.conf, for a "resolver".
Words system_words()
{
    Words words;
    std::ifstream file(resolv_conf);
    for (std::string line; words.size() < most_servers && std::getline(file, line);) {
        const auto name_end = line.find_first_of(" \t");
        if (line.substr(0, name_end) != "nameserver") {
            continue;
        }
        const auto begin = line.find_first_not_of(" \t", name_end);
        const auto end = line.find_first_of(" \t\r", begin);
        const auto word =
            begin == std::string::npos ? std::string() : line.substr(begin, end - begin);
        if (word.find_first_not_of("0123456789abcdefABCDEF.:") == std::string::npos
            && !word.empty()) {  // not fe80::1%eth0
            words.push_back(word.find(':') == std::string::npos ? word : "[" + word + "]");
        }
    }
    return words;
}

/// A resolver with one more parameter. Null: it could not be made, which nginx has logged.
ngx_resolver_t* with(ngx_conf_t* cf, Words words, const char* parameter)
{
    words.emplace_back(parameter);
    std::vector<ngx_str_t> texts;
    for (const std::string& word : words) {
        const ngx_str_t text = copied(cf->pool, word);  // nginx reads some up to the zero
        if (text.data == nullptr) {
            return nullptr;
        }
        texts.push_back(text);
    }
    return ngx_resolver_create(cf, texts.data(), texts.size());
}

bool asks_both([[maybe_unused]] const ngx_resolver_t& resolver) noexcept
{
#if (NGX_HAVE_INET6)
#if nginx_version >= 1023001
    return resolver.ipv6 && resolver.ipv4;
#else
    return resolver.ipv6;
#endif
#else
    return false;
#endif
}

}  // namespace

bool make_resolvers(ngx_conf_t* cf, ngx_resolver_t* chosen, ngx_msec_t timeout, Resolvers& out)
{
    out.timeout = timeout;
    out.chosen = chosen != nullptr && has_servers(*chosen);
    const Words words = out.chosen ? words_of(*chosen) : system_words();
    if (out.chosen && (words.empty() || !asks_both(*chosen))) {
        out.each[0] = chosen;
        return true;
    }
    if (words.empty()) {
        return true;
    }
#if (NGX_HAVE_INET6)
    out.each[0] = with(cf, words, "ipv6=off");
#if nginx_version >= 1023001
    out.each[1] = with(cf, words, "ipv4=off");
#else
    out.each[1] = with(cf, words, "ipv6=on");  // it cannot ask for IPv6 alone
#endif
    return out.each[0] != nullptr && out.each[1] != nullptr;
#else
    out.each[0] = with(cf, words, "valid=30s");
    return out.each[0] != nullptr;
#endif
}

}  // namespace ratelimit::nginx

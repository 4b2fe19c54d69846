#include "rehearse/route/other_server.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

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

#include "rehearse/route/server_names.h"

#include "rehearse/values/request_line.h"

#include <algorithm>

namespace ratelimit::rehearse {

void ServerNames::add(const std::string& name, const ServerConf& server, const Place& place)
{
    if (name.starts_with('~')) {
        patterns_.push_back({ name, RequestRegex(name.substr(1), true, place), &server });
    } else {
        names_.add(lower(name), &server);
    }
}

void ServerNames::compile(const Scope& scope)
{
    for (Pattern& pattern : patterns_) {
        scope.bind(pattern.regex);
    }
}

bool ServerNames::has_captures() const noexcept
{
    return std::any_of(patterns_.begin(), patterns_.end(), [](const Pattern& one) {
        return one.regex.is_needed();
    });
}

const ServerConf* ServerNames::find(
    std::string_view host, Values& values, const ServerConf* only) const
{
    const std::string name(host);
    if (const auto* found = names_.find(name)) {
        return *found;
    }
    for (const Pattern& pattern : patterns_) {
        if ((only == nullptr || only == pattern.server)
            && (name == pattern.text || pattern.regex.match(name, values))) {
            return pattern.server;
        }
    }
    return default_;
}

}  // namespace ratelimit::rehearse

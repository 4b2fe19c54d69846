#include "rehearse/route/server_names.h"

#include "rehearse/values/request_line.h"

#include <algorithm>

namespace ratelimit::rehearse {

void ServerNames::put(Names& names, std::string name, Found found)
{
    const auto [entry, fresh] = names.try_emplace(std::move(name), found);
    if (!fresh && found.preferred && !entry->second.preferred) {
        entry->second = found;
    }
}

void ServerNames::add(std::string_view name, std::size_t server, bool preferred, const Place& place)
{
    if (name.starts_with('~')) {
        patterns_.push_back(
            { std::string(name), Regex(std::string(name.substr(1)), true, place), server, {} });
        return;
    }
    const std::string small = lower(name);
    const Found found{ server, preferred };
    if (small.starts_with('.')) {
        put(exact_, small.substr(1), found);
        put(heads_, small, found);
    } else if (small.starts_with("*.")) {
        put(heads_, small.substr(1), found);
    } else if (small.ends_with(".*")) {
        put(tails_, small.substr(0, small.size() - 1), found);
    } else {
        put(exact_, small, found);
    }
}

void ServerNames::compile(const Scope& scope)
{
    for (Pattern& pattern : patterns_) {
        pattern.captures = scope.captures_of(pattern.regex);
    }
}

bool ServerNames::has_captures() const noexcept
{
    return std::any_of(patterns_.begin(), patterns_.end(), [](const Pattern& one) {
        return !one.captures.empty();
    });
}

std::size_t ServerNames::find(std::string_view host, Values& values) const
{
    const std::string name(host);
    if (const auto found = exact_.find(name); found != exact_.end()) {
        return found->second.server;
    }
    for (auto dot = name.find('.', 1); dot != name.npos; dot = name.find('.', dot + 1)) {
        if (const auto found = heads_.find(name.substr(dot)); found != heads_.end()) {
            return found->second.server;
        }
    }
    for (auto dot = name.rfind('.'); dot != name.npos && dot > 0; dot = name.rfind('.', dot - 1)) {
        if (const auto found = tails_.find(name.substr(0, dot + 1)); found != tails_.end()) {
            return found->second.server;
        }
    }
    for (const Pattern& pattern : patterns_) {
        if (name == pattern.text || pattern.captures.match(pattern.regex, name, values)) {
            return pattern.server;
        }
    }
    return default_;
}

}  // namespace ratelimit::rehearse

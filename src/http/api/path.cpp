#include "http/api/path.h"

#include "limit/percent_text.h"

#include <array>
#include <utility>

namespace ratelimit::http {

namespace {

/// Removes the text up to the next slash, and the slash, from the front. Returns the text.
std::string_view take_segment(std::string_view& path) noexcept
{
    const auto slash = path.find('/');
    const auto segment = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    return segment;
}

std::size_t count_segments(std::string_view path) noexcept
{
    std::size_t count = 0;
    while (!path.empty()) {
        count += take_segment(path).empty() ? 0 : 1;
    }
    return count;
}

/// Whether nginx may have resolved a "." or "..": then its path may name another key, zone or view
/// than the client's does.
bool has_dots(std::string_view raw)
{
    const auto decoded = percent_decoded(raw.substr(0, raw.find('?')));
    if (!decoded) {
        return true;
    }
    for (std::string_view rest = *decoded; !rest.empty();) {
        const auto segment = take_segment(rest);
        if (segment == "." || segment == "..") {
            return true;
        }
    }
    return false;
}

/// The key as it was sent: the rest of the raw path after `segments_before` segments and
/// zones/ZONE/keys. Empty: the path has another form, or no key.
std::string_view key_of_raw(
    std::string_view raw, std::size_t segments_before, std::string_view zone)
{
    raw = raw.substr(0, raw.find('?'));
    const std::size_t wanted = segments_before + 3;
    for (std::size_t count = 0; count < wanted;) {
        if (raw.empty()) {
            return {};
        }
        const auto segment = percent_decoded(take_segment(raw));
        if (!segment) {
            return {};
        }
        if (segment->empty()) {
            continue;  // nginx merges slashes
        }
        const std::size_t index = count++ - segments_before;
        if ((index == 0 && *segment != "zones") || (index == 1 && *segment != zone)
            || (index == 2 && *segment != "keys")) {
            return {};
        }
    }
    return raw;
}

/// The parts of a path that names a key.
struct KeyPath {
    std::string_view location;
    std::string_view raw;
    std::string_view rest;  // of the normalized path, after "keys/"
    std::string_view arguments;
    bool rewritten;
};

constexpr std::string_view override_end = "/override";

/// The key of an argument key=, hash= or id=.
ApiArgument key_argument(ApiPath& found, std::string_view arguments)
{
    using NamedBy = ApiPath::NamedBy;
    constexpr std::array names = { std::pair{ std::string_view("key"), NamedBy::person },
                                   std::pair{ std::string_view("hash"), NamedBy::hash },
                                   std::pair{ std::string_view("id"), NamedBy::id } };
    for (const auto& [name, named_by] : names) {
        if (auto argument = api_argument(arguments, name); argument.given) {
            found.named_by = named_by;
            return argument;
        }
    }
    return {};
}

void set_key(ApiPath& found, const std::optional<std::string>& key)
{
    found.key = key.value_or("");
    if (found.key.empty() && found.view != ApiPath::View::override_zone) {
        found.view = ApiPath::View::no_key;
    }
}

/// Sets view and key of a path below zones/ZONE/keys. A key that ends in /override itself has its
/// slash encoded, or is an argument.
void find_key(ApiPath& found, const KeyPath& path)
{
    using View = ApiPath::View;
    auto key = path.rewritten ? path.rest
                              : key_of_raw(path.raw, count_segments(path.location), *found.zone);
    if (key.empty() || key == override_end.substr(1)) {
        const auto argument = key_argument(found, path.arguments);
        if (argument.given) {
            found.view = key.empty() ? View::key : View::override_key;
            set_key(found, argument.value);
            return;
        }
    }
    found.view = View::key;
    if (key.ends_with(override_end)) {
        found.view = View::override_key;
        key.remove_suffix(override_end.size());
    }
    set_key(found, path.rewritten ? std::optional(std::string(key)) : percent_decoded(key));
}

ApiPath::View page_named(std::string_view name) noexcept
{
    using View = ApiPath::View;
    if (name == "metrics") {
        return View::metrics;
    }
    if (name == "redis") {
        return View::redis;
    }
    if (name == "overrides") {
        return View::overrides;
    }
    if (name == "history") {
        return View::history;
    }
    return name == "fleet" ? View::fleet : View::nothing;
}

}  // namespace

ApiArgument api_argument(std::string_view arguments, std::string_view name)
{
    while (!arguments.empty()) {
        const auto end = arguments.find('&');
        auto argument = arguments.substr(0, end);
        arguments.remove_prefix(end == std::string_view::npos ? arguments.size() : end + 1);
        if (argument == name) {
            return { true, std::nullopt };
        }
        if (argument.starts_with(name) && argument.substr(name.size()).starts_with('=')) {
            return { true, percent_decoded(argument.substr(name.size() + 1)) };
        }
    }
    return {};
}

ApiPath parse_api_path(
    std::string_view location, std::string_view path, std::string_view raw, bool rewritten,
    std::string_view arguments)
{
    using View = ApiPath::View;
    ApiPath found;
    if (!path.starts_with(location)) {
        return found;
    }
    if (has_dots(raw)) {
        found.view = View::no_key;
        return found;
    }
    auto rest = path.substr(location.size());
    if (!location.ends_with('/')) {
        if (rest.empty()) {
            found.view = View::slash_missing;
            return found;
        }
        if (rest.front() != '/') {
            return found;
        }
        rest.remove_prefix(1);
    }
    if (rest.empty()) {
        found.view = View::dashboard;
        return found;
    }
    const auto first = take_segment(rest);
    if (first != "zones") {
        found.view = rest.empty() ? page_named(first) : View::nothing;
        return found;
    }
    found.view = View::zones;
    if (rest.empty()) {
        return found;
    }
    found.zone = take_segment(rest);
    if (rest.empty()) {
        return found;
    }
    const auto collection = take_segment(rest);
    if (collection == "keys") {
        find_key(found, { location, raw, rest, arguments, rewritten });
    } else if (!rest.empty()) {
        found.view = View::nothing;
    } else if (collection == "override") {
        // An argument with a key must not be overlooked: the whole zone is not meant.
        const auto [given, key] = key_argument(found, arguments);
        found.view = given ? View::override_key : View::override_zone;
        set_key(found, key);
    } else {
        found.view = collection == "overrides" ? View::overrides
            : collection == "history"          ? View::history
                                               : View::nothing;
    }
    return found;
}

}  // namespace ratelimit::http

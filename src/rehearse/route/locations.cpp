#include "rehearse/route/locations.h"

namespace ratelimit::rehearse {

namespace {

using Kind = Location::Kind;

bool is_prefix(const Location& location) noexcept
{
    return location.kind == Kind::prefix || location.kind == Kind::prefix_first;
}

struct Found {
    const Location* location;
    bool final;  // no other location is tried
};

/// nginx redirects "/path" to "/path/" if a handler such as `proxy_pass` has that.
bool is_path_with_slash(const Location& location, std::string_view path) noexcept
{
    return (is_prefix(location) || location.kind == Kind::exact) && location.asks_upstream()
        && location.text.size() == path.size() + 1 && location.text.back() == '/'
        && location.text.starts_with(path);
}

/// The exact or the longest of the prefixes among the children; null: there is none, or if it is
/// final, a slash is missing.
Found find_static(const Location& parent, std::string_view path)
{
    const Location* longest = nullptr;
    bool slash_is_missing = false;
    for (const auto& child : parent.children) {
        if (child->kind == Kind::exact && child->text == path) {
            return { child.get(), true };
        }
        slash_is_missing = slash_is_missing || is_path_with_slash(*child, path);
        const bool longer = longest == nullptr || child->text.size() > longest->text.size();
        if (is_prefix(*child) && longer && path.starts_with(child->text)) {
            longest = child.get();
        }
    }
    const bool whole = longest != nullptr && longest->text.size() == path.size();
    return slash_is_missing && !whole ? Found{ nullptr, true } : Found{ longest, false };
}

/// As nginx's ngx_http_core_find_location: `current` is found so far, and its children are tried.
Found find_below(const Location& current, std::string_view path)
{
    Found found{ &current, false };
    bool no_regex = false;
    const Found next = find_static(current, path);
    if (next.location != nullptr || next.final) {
        if (next.final) {
            return next;
        }
        no_regex = next.location->kind == Kind::prefix_first;
        found = find_below(*next.location, path);
        if (found.final) {
            return found;
        }
    }
    if (no_regex) {
        return found;
    }
    for (const auto& child : current.children) {
        if (child->kind == Kind::regex && child->regex->matches(path)) {
            return { find_below(*child, path).location, true };
        }
    }
    return found;
}

}  // namespace

void set_pattern(Location& location, const Directive& directive)
{
    const auto& args = directive.args;
    if (args.empty() || args.size() > 2) {
        fail_at(directive.place, "\"location\" must have a path or a pattern");
    }
    std::string modifier = args.size() == 2 ? args[0] : "";
    std::string pattern = args.back();
    if (args.size() == 1) {  // "=/path" and the like, without a space
        for (const std::string_view known : { "=", "^~", "~*", "~" }) {
            if (pattern.starts_with(known)) {
                modifier = known;
                pattern.erase(0, known.size());
                break;
            }
        }
    }
    location.text = pattern;
    if (modifier.empty()) {
        location.kind = pattern.starts_with('@') ? Kind::named : Kind::prefix;
    } else if (modifier == "=") {
        location.kind = Kind::exact;
    } else if (modifier == "^~") {
        location.kind = Kind::prefix_first;
    } else if (modifier == "~" || modifier == "~*") {
        location.kind = Kind::regex;
        location.regex.emplace(pattern, modifier == "~*", directive.place);
        location.text.insert(0, modifier + " ");
    } else {
        fail_at(directive.place, "invalid location modifier \"" + modifier + "\"");
    }
}

std::string Location::title() const
{
    switch (kind) {
    case Kind::prefix_first:
        return "^~ " + text;
    case Kind::exact:
        return "= " + text;
    default:
        return text;
    }
}

const Location& last_resort(const Location& server)
{
    for (const auto& child : server.children) {
        if (is_prefix(*child) && child->text == "/") {
            return *child;
        }
    }
    return server;
}

const Location* find_location(const Location& server, std::string_view path)
{
    return find_below(server, path).location;
}

}  // namespace ratelimit::rehearse

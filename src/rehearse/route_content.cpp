#include "limit/rate_text.h"
#include "rehearse/route.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

const Location* named_location(const Location& server, std::string_view name)
{
    const auto found =
        std::find_if(server.children.begin(), server.children.end(), [name](const auto& one) {
            return one->kind == Location::Kind::named && one->text == name;
        });
    return found == server.children.end() ? nullptr : found->get();
}

}  // namespace

/// Where a request goes that no limit was in force for.
Router::Next Router::content(Walk& walk) const
{
    const Location& location = *walk.location;
    walk.end(Reached::none);
    const std::string& path = walk.values.rewritten().path;
    if (location.try_files != nullptr) {
        const auto& args = location.try_files->args;
        const bool tries_folder = std::any_of(
            args.begin(), args.end() - 1, [](const auto& one) { return one.ends_with('/'); });
        const std::string& last = args.back();
        if (file_found(walk.values)) {
            return Next::done;
        }
        if (path == "/" && tries_folder) {
            return index(walk);
        }
        if (last.starts_with('=')) {
            return error_page(
                walk,
                static_cast<int>(
                    parse_number(std::string_view(last).substr(1), 300, 599).value_or(0)));
        }
        std::string own;
        const std::string target(
            location.fallback ? location.fallback->value(walk.values, own)
                              : std::string_view(last));
        return redirect(walk, target);
    }
    const int status = status_of(walk.values);
    if (location.handler != nullptr) {
        const bool own_error = location.own.around.intercepts || status == 502 || status == 504;
        return own_error ? error_page(walk, status) : Next::done;
    }
    return path.ends_with('/') && status != 403 && status != 404 ? index(walk)
                                                                 : error_page(walk, status);
}

/// The first file of `index` that may be there: in another location, or plain.
Router::Next Router::index(Walk& walk) const
{
    const std::string folder = walk.values.rewritten().path;
    for (const std::string& name : walk.location->own.around.index) {
        if (name.find('$') != std::string::npos) {
            continue;
        }
        const std::string path = name.starts_with('/') ? name : folder + name;
        const Location* location = find_location(walk.server.top, path);
        const bool by_upstream = location != nullptr && location->handler != nullptr;
        // A request that was refused at that time was answered by neither.
        const bool fits = upstream_ == nullptr
            || (upstream_->value(walk.values).empty()
                    ? !by_upstream || !is_success(status_of(walk.values))
                    : by_upstream);
        const bool is_final = final_path_ != nullptr && final_path_->value(walk.values) == path;
        if (is_final
            || (final_path_ == nullptr && fits && location != nullptr
                && (by_upstream || location->plan))) {
            return redirect(
                walk,
                path + (walk.values.rewritten().args.empty() ? "" : "?")
                    + walk.values.rewritten().args);
        }
    }
    return error_page(walk, status_of(walk.values));
}

/// The page of an error, if there is one. `=` hides whether there was the error 404: as with
/// try_files.
Router::Next Router::error_page(Walk& walk, int status) const
{
    const auto& pages = walk.location == nullptr ? walk.server.top.own.around.error_pages
                                                 : walk.location->own.around.error_pages;
    if (pages == nullptr || walk.has_error_page) {
        return Next::done;
    }
    const bool hidden = walk.route.reached == Reached::none && walk.location->handler == nullptr
        && !file_found(walk.values);
    for (const ErrorPage& page : *pages) {
        if (page.code == status || (page.code == 404 && page.response_changes && hidden)) {
            walk.has_error_page = true;
            return redirect(walk, page.target);
        }
    }
    return Next::done;
}

/// An internal redirect to a path or to a named location.
Router::Next Router::redirect(Walk& walk, std::string_view target) const
{
    Values::Rewritten& state = walk.values.rewritten();
    if (++walk.turns > most_turns) {
        return walk.end(Reached::rewrite);
    }
    if (target.starts_with('@')) {
        walk.location = named_location(walk.server.top, target);
        if (walk.location == nullptr) {
            return walk.end(Reached::rewrite);
        }
        state.redirected = true;
        return Next::named;
    }
    if (!target.starts_with('/')) {
        return Next::done;  // a redirect of the client
    }
    state.redirected = true;
    const std::string text(target);
    const auto question = text.find('?');
    state.path = text.substr(0, question);
    state.args = question == text.npos ? "" : text.substr(question + 1);
    return Next::server;
}

}  // namespace ratelimit::rehearse

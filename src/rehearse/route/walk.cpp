#include "rehearse/route/walk.h"

#include "limit/rate_text.h"

#include <algorithm>
#include <array>
#include <string>

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

std::string_view place_name(Reached reached) noexcept
{
    constexpr std::array<std::string_view, reached_kinds> names = {
        "limits",    "none", "malformed",      "rewrite",   "internal",
        "too_large", "deny", "authentication", "limit_req",
    };
    return names[static_cast<std::size_t>(reached)];
}

Walk::Next Walk::changed(Next next) noexcept
{
    status = 0;
    return ++turns > most_turns ? end(Reached::rewrite) : next;
}

Walk::Next Walk::ends_with(int code) noexcept
{
    status = code;
    return Next::done;
}

bool Walk::answered(int code, const Directive* one, std::string_view reason, bool likely)
{
    const int logged = facts.status_of(values);
    const ErrorPage* const page = page_of(code);
    // Without `=`, a page has the status of its error, or that of a redirect or an error of its
    // own.
    const bool may_be_page =
        page != nullptr && (page->response_changes || (logged >= 300 && logged != 304));
    if (logged != code && !may_be_page) {
        return false;
    }
    const std::string question = std::string(reason) + " " + std::to_string(code);
    return values.in_doubt(asker(one), question, likely && logged == code);
}

Walk::Next Walk::limited()
{
    if (route.plan != nullptr) {
        return Next::stay;  // they decide once for a request
    }
    route.plan = &*location->plan;
    end(Reached::limits);
    if (limit_reqs != nullptr) {
        return Next::done;
    }
    may_differ = values.questions() == first_questions;
    if (may_differ) {
        return Next::done;
    }
    const int code = location->own.ratelimit_status;
    return answered(code, nullptr, "refused") ? error_page(code) : Next::stay;
}

Walk::Next Walk::content()
{
    if (location->try_files != nullptr) {
        return try_files();
    }
    return handle();
}

/// The content handler of the location.
Walk::Next Walk::handle()
{
    return location->handler == nullptr ? file()
        : location->asks_upstream()     ? upstream()
                                        : ends_with(0);
}

/// No warning names a question whose answer changes nothing, since the limits were met before.
const Directive* Walk::asker(const Directive* one) const noexcept
{
    return route.plan == nullptr ? one : nullptr;
}

/// The answer of an upstream, which can have the page of an error.
Walk::Next Walk::upstream()
{
    const int number = upstreams++;
    may_be_cached = may_be_cached || location->own.caches;
    const auto& pages = location->own.error_pages;
    if (pages == nullptr || has_error_page) {
        return ends_with(0);
    }
    // The answer of a cache is not in $upstream_status.
    const bool known = facts.upstream_status != nullptr && !location->own.caches;
    for (const ErrorPage& page : *pages) {
        if (!location->own.intercepts && page.code != 502 && page.code != 504) {
            continue;  // the upstream's answer is not changed
        }
        // An answer with this status has the page, so no other answer left this status in the log.
        const bool is_error = known ? page.code == facts.upstream_answer(values, number)
                                    : page.code == facts.status_of(values)
                || answered(page.code, page.directive, page.target);
        if (is_error) {
            return follow(page);
        }
    }
    return ends_with(0);
}

/// The answer of the static module.
Walk::Next Walk::file()
{
    const std::string path = values.rewritten().path;
    const std::string_view method = value_of(facts.method, values);
    if (!method.empty() && method != "GET" && method != "HEAD" && method != "POST") {
        return error_page(not_allowed);
    }
    if (path.ends_with('/')) {
        return index();
    }
    if (kept_status != 0) {
        return ends_with(of_file);  // the page of an error is taken to be there
    }
    const ErrorPage* const page = page_of(not_found);
    if (page == nullptr && values.questions() == first_questions) {
        return ends_with(any_of_file);
    }
    const Directive* const one = page == nullptr ? nullptr : asker(page->directive);
    if (RequestFacts::has_file(values, one, path)) {
        return ends_with(of_file);
    }
    return RequestFacts::has_folder(values, one, path) ? ends_with(moved_to_folder)
                                                       : error_page(not_found);
}

/// The first file of `index` that is there.
Walk::Next Walk::index()
{
    const std::string folder = values.rewritten().path;
    const Directive* const one = asker(location->own.index);
    for (const Expression& file : location->index_files) {
        std::string own;
        const std::string name(file.value(values, own));
        if (name.empty()) {
            continue;  // it cannot be followed
        }
        const std::string path = name.starts_with('/') ? name : folder + name;
        if (values.in_doubt(one, path, true)) {
            const std::string& args = values.rewritten().args;
            return redirect(args.empty() ? path : std::string(path).append("?").append(args));
        }
    }
    const ErrorPage* const page = page_of(not_found);
    const bool is_there =
        RequestFacts::has_folder(values, page == nullptr ? one : asker(page->directive), folder);
    if (is_there && location->own.autoindex) {
        return ends_with(of_file);
    }
    return error_page(is_there ? forbidden : not_found);
}

/// The first of the files that are there, or else the last one.
Walk::Next Walk::try_files()
{
    const auto& args = location->try_files->args;
    const Directive* const one = asker(location->try_files);
    std::string own;
    for (std::size_t i = 0; i + 1 < args.size(); ++i) {
        const std::string path(location->try_targets[i].value(values, own));
        const bool is_folder = args[i].ends_with('/');
        if (path.empty()
            || !(
                is_folder ? RequestFacts::has_folder(values, one, path)
                          : RequestFacts::has_file(values, one, path))) {
            continue;
        }
        values.rewritten().path = path;
        return handle();
    }
    if (args.back().starts_with('=')) {
        const auto code = parse_number(std::string_view(args.back()).substr(1), 300, 599);
        return error_page(static_cast<int>(code.value_or(0)));
    }
    return redirect(std::string(location->try_targets.back().value(values, own)));
}

const ErrorPage* Walk::page_of(int code) const
{
    const auto& pages = here().own.error_pages;
    if (pages == nullptr || has_error_page) {
        return nullptr;
    }
    const auto found = std::find_if(
        pages->begin(), pages->end(), [code](const ErrorPage& one) { return one.code == code; });
    return found == pages->end() ? nullptr : &*found;
}

Walk::Next Walk::error_page(int code)
{
    const ErrorPage* const page = page_of(code);
    if (page != nullptr) {
        return follow(*page);
    }
    kept_status = code >= 300 ? 0 : kept_status;  // that of an error before
    return ends_with(code);
}

Walk::Next Walk::follow(const ErrorPage& page)
{
    const auto number = static_cast<std::size_t>(&page - here().own.error_pages->data());
    has_error_page = !here().own.recursive_errors;
    kept_status = page.response;
    std::string own;
    const std::string target(here().error_targets[number].value(values, own));
    if (!target.starts_with('/') && !target.starts_with('@')) {
        kept_status = kept_status / 100 == 3 ? kept_status : moved_elsewhere;
    }
    return redirect(target);
}

/// An internal redirect to a path or to a named location.
Walk::Next Walk::redirect(std::string_view target)
{
    const bool is_named = target.starts_with('@');
    const Next next = changed(is_named ? Next::named : Next::server);
    if (next == Next::done || (!is_named && !target.starts_with('/'))) {
        return Next::done;  // or a redirect of the client
    }
    Values::Rewritten& state = values.rewritten();
    state.redirected = true;
    if (is_named) {
        location = named_location(server.top, target);
        return location == nullptr ? end(Reached::rewrite) : next;
    }
    const std::string text(target);
    const auto question = text.find('?');
    state.path = text.substr(0, question);
    state.args = question == text.npos ? "" : text.substr(question + 1);
    return next;
}

unsigned Walk::differences() const
{
    if (may_differ) {
        return 0;
    }
    const int code = facts.status_of(values);
    const int asked = facts.asked_upstreams(values);
    const std::string& path = values.rewritten().path;
    // nginx answers errors of the client before it asks an upstream; seldom its own, such as 502
    // for a name without an address.
    const bool before = code == 400 || code == 408 || code == 413 || code == 499;
    const bool seldom = asked < upstreams && (code == 502 || code == 503);
    const bool may_ask_none = upstreams > 0 && (before || seldom || may_be_cached);
    const bool upstreams_differ =
        facts.upstream != nullptr && asked != upstreams && !(asked < upstreams && may_ask_none);
    const bool path_differs =
        facts.final_path != nullptr && !path.empty() && facts.final_path->value(values) != path;
    const int expected = kept_status != 0 ? kept_status : status;
    const bool is_file = is_success(code) || code == 405 || code == 412 || code == 416;
    const bool same_status = code == 0 || expected == 0 || expected == code
        || (expected == of_file && is_file) || (upstreams > 0 && asked == 0 && before)
        || (expected == any_of_file
            && (is_file || code == moved_to_folder || code == forbidden || code == not_found));
    return (upstreams_differ ? other_upstreams : 0) + (path_differs ? other_path : 0)
        + (same_status && !seldom ? 0 : other_status);
}

}  // namespace ratelimit::rehearse

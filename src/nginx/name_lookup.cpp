#include "nginx/name_lookup.h"

#include "nginx/guarded.h"
#include "nginx/text.h"

#include <algorithm>

namespace ratelimit::nginx {

namespace {

constexpr milliseconds soon{ 1 };
/// How long one resolver has for its addresses once the other one has some.
constexpr milliseconds other_family{ 50 };
/// How long a failed look-up is not repeated.
constexpr milliseconds pause{ 5000 };

std::string text_of(const ngx_resolver_addr_t& address)
{
    u_char text[NGX_SOCKADDR_STRLEN];
    const std::size_t length =
        ngx_sock_ntop(address.sockaddr, address.socklen, text, sizeof(text), 0);
    std::string_view host(reinterpret_cast<char*>(text), length);
    if (host.starts_with('[')) {
        host = host.substr(1, host.size() - 2);
    }
    return std::string(host);
}

}  // namespace

void FailedNames::ended(const std::string& name, ngx_int_t state)
{
    const ngx_str_t text = borrowed(name);
    if (state == NGX_OK) {
        if (states_.erase(name) != 0) {
            ngx_log_error(
                NGX_LOG_NOTICE, ngx_cycle->log, 0, "ratelimit: \"%V\" is resolved again", &text);
        }
        return;
    }
    if (states_.size() >= most && !states_.contains(name)) {
        return;  // servers announce one name after another
    }
    ngx_int_t& known = states_.try_emplace(name, NGX_OK).first->second;
    if (std::exchange(known, state) != state) {
        ngx_log_error(
            NGX_LOG_WARN, ngx_cycle->log, 0, "ratelimit: \"%V\" could not be resolved (%i: %s)",
            &text, state, ngx_resolver_strerror(state));
    }
}

NameLookup::NameLookup(
    const Resolvers& resolvers, FailedNames& failed, std::string name,
    std::function<void(const Addresses&)> done)
    : failed_(failed), name_(std::move(name)), done_(std::move(done)), timer_([this] { finish(); })
{
    addresses_.valid = pause;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (resolvers.each[i] != nullptr) {
            start(parts_[i], *resolvers.each[i], resolvers.timeout);
        }
    }
    wait();
}

void NameLookup::start(Part& part, ngx_resolver_t& resolver, ngx_msec_t timeout)
{
    part.whole = this;
    ngx_resolver_ctx_t* context = ngx_resolve_start(&resolver, nullptr);
    if (context == nullptr || context == NGX_NO_RESOLVER) {
        return;
    }
    context->name = borrowed(name_);
    context->handler = resolved;
    context->data = &part;
    context->timeout = timeout;
    context->cancelable = 1;
    part.context = context;
    if (ngx_resolve_name(context) != NGX_OK) {
        part.context = nullptr;  // freed
        part.state = NGX_RESOLVE_SERVFAIL;
    }
}

void NameLookup::resolved(ngx_resolver_ctx_t* context) noexcept
{
    auto& part = *static_cast<Part*>(context->data);
    part.state = context->state;
    guarded(ngx_cycle->log, [&] { part.whole->read(*context); });
    part.context = nullptr;
    ngx_resolve_name_done(context);
    part.whole->wait();
}

void NameLookup::read(const ngx_resolver_ctx_t& context)
{
    if (context.state != NGX_OK) {
        return;
    }
    const std::chrono::seconds left{ std::max<time_t>(context.valid - ngx_time(), 1) };
    const bool first = addresses_.all.empty();
    addresses_.valid = first ? left : std::min<milliseconds>(addresses_.valid, left);
    for (ngx_uint_t i = 0; i < context.naddrs; ++i) {
        std::string text = text_of(context.addrs[i]);
        auto& all = addresses_.all;
        if (std::find(all.begin(), all.end(), text) == all.end()) {
            all.push_back(std::move(text));
        }
    }
}

/// Until the look-up has ended, or a moment longer for the other family.
void NameLookup::wait() noexcept
{
    const bool running = std::any_of(
        parts_.begin(), parts_.end(), [](const Part& part) { return part.context != nullptr; });
    if (running && addresses_.all.empty()) {
        timer_.stop();  // it runs if the first resolver failed before the other one began
    } else {
        timer_.start(running ? other_family : soon);
    }
}

void NameLookup::cancel() noexcept
{
    for (Part& part : parts_) {
        if (part.context != nullptr) {
            ngx_resolve_name_done(std::exchange(part.context, nullptr));
        }
    }
}

void NameLookup::finish()
{
    cancel();
    ngx_int_t state = NGX_OK;
    if (addresses_.all.empty()) {
        state = parts_[0].state != NGX_OK ? parts_[0].state : parts_[1].state;
        state = state == NGX_OK ? NGX_RESOLVE_SERVFAIL : state;
    }
    failed_.ended(name_, state);
    done_(addresses_);
}

}  // namespace ratelimit::nginx

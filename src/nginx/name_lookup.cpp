#include "nginx/name_lookup.h"

#include "nginx/guarded.h"
#include "nginx/text.h"

#include <algorithm>

namespace ratelimit::nginx {

namespace {

constexpr milliseconds soon{ 1 };
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

NameLookup::NameLookup(
    ngx_resolver_t& resolver, ngx_msec_t timeout, std::string name,
    std::function<void(const Addresses&)> done)
    : name_(std::move(name)), done_(std::move(done)), timer_([this] { done_(addresses_); })
{
    timer_.cancelable(true);
    addresses_.valid = pause;
    ngx_resolver_ctx_t* context = ngx_resolve_start(&resolver, nullptr);
    if (context == nullptr || context == NGX_NO_RESOLVER) {
        timer_.start(soon);
        return;
    }
    context->name = borrowed(name_);
    context->handler = resolved;
    context->data = this;
    context->timeout = timeout;
    context->cancelable = 1;
    context_ = context;
    if (ngx_resolve_name(context) != NGX_OK) {
        context_ = nullptr;  // freed
        timer_.start(soon);
    }
}

NameLookup::~NameLookup()
{
    if (context_ != nullptr) {
        ngx_resolve_name_done(context_);
    }
}

void NameLookup::resolved(ngx_resolver_ctx_t* context) noexcept
{
    auto& lookup = *static_cast<NameLookup*>(context->data);
    guarded(ngx_cycle->log, [&] { lookup.read(*context); });
    lookup.context_ = nullptr;
    ngx_resolve_name_done(context);
    lookup.timer_.start(soon);
}

void NameLookup::read(const ngx_resolver_ctx_t& context)
{
    if (context.state != NGX_OK) {
        return;
    }
    for (ngx_uint_t i = 0; i < context.naddrs; ++i) {
        addresses_.all.push_back(text_of(context.addrs[i]));
    }
    const std::chrono::seconds left{ context.valid - ngx_time() };
    addresses_.valid = std::max<milliseconds>(left, std::chrono::seconds{ 1 });
}

}  // namespace ratelimit::nginx

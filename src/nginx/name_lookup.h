#pragma once

#include "loop/event_loop.h"
#include "nginx/ngx.h"
#include "nginx/resolvers.h"
#include "nginx/timer.h"

#include <array>
#include <map>
#include <string>

namespace ratelimit::nginx {

/// The names whose last look-up failed. Says each change once.
class FailedNames {
public:
    /// A look-up has ended in this state of nginx's resolver.
    void ended(const std::string& name, ngx_int_t state);

private:
    static constexpr std::size_t most = 1000;

    std::map<std::string, ngx_int_t> states_;
};

/// A look-up by nginx's resolvers. It succeeds if one of them does. `done` is called from the loop,
/// never from the constructor.
class NameLookup final : public Lookup {
public:
    /// `failed` must outlive this object.
    NameLookup(
        const Resolvers& resolvers, FailedNames& failed, std::string name,
        std::function<void(const Addresses&)> done);
    ~NameLookup() override { cancel(); }
    NameLookup(const NameLookup&) = delete;
    NameLookup& operator=(const NameLookup&) = delete;

private:
    /// What one resolver does.
    struct Part {
        NameLookup* whole = nullptr;
        ngx_resolver_ctx_t* context = nullptr;  // null: it is not running
        ngx_int_t state = NGX_OK;
    };

    void start(Part& part, ngx_resolver_t& resolver, ngx_msec_t timeout);
    static void resolved(ngx_resolver_ctx_t* context) noexcept;
    void read(const ngx_resolver_ctx_t& context);
    void wait() noexcept;
    void cancel() noexcept;
    void finish();

    FailedNames& failed_;
    std::string name_;
    std::function<void(const Addresses&)> done_;
    Addresses addresses_;
    std::array<Part, 2> parts_;
    NgxTimer timer_;  // calls `done`, since a resolver may answer inside the constructor
};

}  // namespace ratelimit::nginx

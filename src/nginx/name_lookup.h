#pragma once

#include "loop/event_loop.h"
#include "nginx/ngx.h"
#include "nginx/timer.h"

#include <string>

namespace ratelimit::nginx {

/// A look-up by nginx's resolver. `done` is called from the loop, never from the constructor.
class NameLookup final : public Lookup {
public:
    NameLookup(
        ngx_resolver_t& resolver, ngx_msec_t timeout, std::string name,
        std::function<void(const Addresses&)> done);
    ~NameLookup() override;
    NameLookup(const NameLookup&) = delete;
    NameLookup& operator=(const NameLookup&) = delete;

private:
    static void resolved(ngx_resolver_ctx_t* context) noexcept;
    void read(const ngx_resolver_ctx_t& context);

    std::string name_;
    std::function<void(const Addresses&)> done_;
    Addresses addresses_;
    ngx_resolver_ctx_t* context_ = nullptr;
    NgxTimer timer_;  // calls `done`, since the resolver may answer inside the constructor
};

}  // namespace ratelimit::nginx

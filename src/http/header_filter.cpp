#include "http/header_filter.h"

#include "base/decimal.h"
#include "http/client_gone.h"
#include "http/request_state.h"
#include "limit/rate_headers.h"
#include "nginx/pool.h"
#include "nginx/text.h"

#include <algorithm>
#include <array>

namespace ratelimit::http {

namespace {

using nginx::borrowed;

ngx_http_output_header_filter_pt after_rate_headers;

bool same_name(const ngx_table_elt_t& header, const ngx_str_t& name) noexcept
{
    return header.key.len == name.len && ngx_strncasecmp(header.key.data, name.data, name.len) == 0;
}

/// Whether the backend of a request that passed tells a limit of its own: by the status 429, or by
/// a header that a limit has.
bool tells_its_limit(const ngx_http_request_t* r) noexcept
{
    static constexpr std::array names = { std::string_view("x-ratelimit"),
                                          std::string_view("x-rate-limit"),
                                          std::string_view("ratelimit"),
                                          std::string_view("retry-after") };
    if (r->upstream == nullptr) {
        return false;  // the response is nginx's own, such as that of a check that only peeks
    }
    if (r->headers_out.status == NGX_HTTP_TOO_MANY_REQUESTS) {
        return true;
    }
    const auto is_limit = [](const ngx_table_elt_t& header) {
        return header.hash != 0 && std::ranges::any_of(names, [&header](std::string_view name) {
                   ngx_str_t begin = borrowed(name);
                   return header.key.len >= begin.len
                       && ngx_strncasecmp(header.key.data, begin.data, begin.len) == 0;
               });
    };
    for (const auto* part = &r->headers_out.headers.part; part != nullptr; part = part->next) {
        const auto* headers = static_cast<const ngx_table_elt_t*>(part->elts);
        if (std::ranges::any_of(headers, headers + part->nelts, is_limit)) {
            return true;
        }
    }
    return false;
}

/// Whether the client is shown the limits. A dry run is invisible to clients.
bool shows_limits(const ngx_http_request_t* r, const RequestState& state) noexcept
{
    const Result result = state.decision.result();
    if (result == Result::none || state.conf.dry_run != 0) {
        return false;
    }
    const bool refused = result == Result::rejected || result == Result::failed_closed;
    return refused || !tells_its_limit(r);
}

/// The headers of one response, in order.
class Headers {
public:
    explicit Headers(ngx_http_request_t* r) noexcept
        : r_(r), digits_(static_cast<char*>(ngx_pnalloc(r->pool, most * most_digits)))
    {
    }

    /// `value`: at least 0.
    void number(std::string_view name, std::int64_t value) noexcept
    {
        if (digits_ != nullptr) {
            digits_ += most_digits;
            add(name, { put_digits_before(digits_, static_cast<std::uint64_t>(value)), digits_ });
        }
    }

    /// A header with a list value; `write` writes `members` to the memory that it gets.
    template <class Write>
    void list(std::string_view name, std::span<const HeaderMember> members, Write&& write) noexcept
    {
        auto* room = static_cast<char*>(ngx_pnalloc(r_->pool, header_room(members)));
        const auto value = room == nullptr ? std::string_view{} : write(members, room);
        good_ = good_ && room != nullptr;
        text(name, value);
    }

    /// `value`: outlives the response. An empty one has no header.
    void text(std::string_view name, std::string_view value) noexcept
    {
        if (!value.empty()) {
            add(name, value);
        }
    }

    /// Adds the headers to the response, in place of those of the same names that the page of a
    /// refusal has. False: out of memory.
    bool send() noexcept
    {
        drop_others();
        return good_ && digits_ != nullptr
            && std::ranges::all_of(all_.begin(), all_.begin() + count_, [&](const Header& header) {
                   return push(header);
               });
    }

private:
    struct Header {
        ngx_str_t name;  // static storage: the response refers to it
        ngx_str_t value;
    };
    static constexpr std::size_t most = 9;  // two sets of three, two lists, Retry-After

    void add(std::string_view name, std::string_view value) noexcept
    {
        all_[count_++] = { borrowed(name), borrowed(value) };
    }

    void drop_others() noexcept
    {
        for (auto* part = &r_->headers_out.headers.part; part != nullptr; part = part->next) {
            auto* others = static_cast<ngx_table_elt_t*>(part->elts);
            for (ngx_uint_t i = 0; i < part->nelts; ++i) {
                for (std::size_t ours = 0; ours < count_; ++ours) {
                    if (others[i].hash != 0 && same_name(others[i], all_[ours].name)) {
                        others[i].hash = 0;
                    }
                }
            }
        }
    }

    bool push(const Header& header) noexcept
    {
        auto* place = static_cast<ngx_table_elt_t*>(ngx_list_push(&r_->headers_out.headers));
        if (place == nullptr) {
            return false;
        }
        ngx_memzero(place, sizeof(*place));
        place->hash = 1;
        place->key = header.name;
        place->value = header.value;
        return true;
    }

    ngx_http_request_t* const r_;
    std::array<Header, most> all_;
    std::size_t count_ = 0;
    char* digits_;  // where the last number ends
    bool good_ = true;
};

/// The three single-valued headers, of the limit with the least left.
void set_three(
    Headers& headers, const Decision& decision, std::string_view limit, std::string_view remaining,
    std::string_view reset) noexcept
{
    const AppliedLimit& shown = decision.shown();
    headers.number(limit, shown.policy.limit());
    headers.number(remaining, shown.state.remaining);
    headers.number(reset, whole_seconds(shown_reset(shown.policy, shown.state)));
}

bool set_draft(Headers& headers, const RequestState& state) noexcept
{
    const LimitSet& set = *state.conf.limits;
    const auto limits = state.decision.limits();
    const auto members = nginx::make_array<HeaderMember>(state.request->pool, limits.size());
    if (members.data() == nullptr) {
        return false;
    }
    std::size_t count = 0;
    bool configured = limits.size() == set.limits.size() && !set.policy_header.empty();
    for (const AppliedLimit& limit : limits) {
        const LimitConf& conf = set.limits[limit.configured];
        configured = configured && limit.policy == conf.policy;
        if (!limit.malformed && !limit.shadow) {
            HeaderMember& member = members[count++];
            member = { limit.zone->name, limit.policy, conf.unit, std::nullopt };
            if (limit.decided) {
                member.state = limit.state;
            }
        }
    }
    if (configured) {
        headers.text("RateLimit-Policy", set.policy_header);
    } else {
        headers.list("RateLimit-Policy", members.first(count), policy_header);
    }
    headers.list("RateLimit", members.first(count), state_header);
    return true;
}

bool set_headers(ngx_http_request_t* r, const RequestState& state) noexcept
{
    const ngx_uint_t sets = state.conf.headers;
    const Decision& decision = state.decision;
    Headers headers(r);

    if (decision.has_outcome() && !decision.shown().shadow) {
        if ((sets & headers_x_ratelimit) != 0) {
            set_three(
                headers, decision, "X-RateLimit-Limit", "X-RateLimit-Remaining",
                "X-RateLimit-Reset");
        }
        if ((sets & headers_legacy) != 0) {
            set_three(
                headers, decision, "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset");
        }
    }
    if ((sets & headers_draft) != 0 && !set_draft(headers, state)) {
        return false;
    }
    const auto retry_after = state.retry_after();
    if (decision.result() == Result::rejected && retry_after) {
        headers.number("Retry-After", *retry_after);
    }
    return headers.send();
}

ngx_int_t filter(ngx_http_request_t* r) noexcept
{
    if (is_limited(r)) {
        RequestState* state = RequestState::find(r);
        if (state != nullptr) {
            show_client_gone(*state);  // if the body was not read
            if (shows_limits(r, *state) && !set_headers(r, *state)) {
                return NGX_ERROR;
            }
        }
    }
    return after_rate_headers(r);
}

}  // namespace

void install_header_filter() noexcept
{
    after_rate_headers = ngx_http_top_header_filter;
    ngx_http_top_header_filter = filter;
}

}  // namespace ratelimit::http

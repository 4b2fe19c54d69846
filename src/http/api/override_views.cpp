#include "http/api/override_views.h"

#include "fleet/override_text.h"
#include "http/api/change_log.h"
#include "http/api/named_key.h"
#include "http/api/override_queries.h"
#include "http/api/response.h"
#include "limit/rate_text.h"
#include "nginx/guarded.h"
#include "nginx/text.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>

namespace ratelimit::http {

namespace {

using Change = fleet::ChangeCall::Change;
using View = ApiPath::View;

/// Empty: the override would end later than now, and within the longest time.
std::string_view wrong_end(const FleetMemory& fleet, const fleet::OverrideTime& time)
{
    if (time.until.count() == 0 || fleet.shared().heard_us.load() == 0) {
        return {};  // Redis was never heard, and the change will not be made
    }
    const milliseconds rest = time.until - fleet.redis_now();
    return rest.count() > 0 && rest <= max_window
        ? std::string_view{}
        : "invalid \"until\", expected a time that is to come, in at most 366 days";
}

ngx_int_t set_override(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, std::string_view body)
{
    constexpr std::array<std::string_view, 8> members = { "rate",  "burst",     "concurrency",
                                                          "block", "unlimited", "for",
                                                          "until", "reason" };
    if (std::ranges::any_of(members, [r](std::string_view member) {
            return api_argument(nginx::view(r->args), member).given;
        })) {
        return send_error(
            r, NGX_HTTP_BAD_REQUEST,
            "expected rate, for and the others in the body, not as arguments");
    }
    fleet::OverrideChange wanted;
    if (const auto error = fleet::parse_change(body, wanted); !error.empty()) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, error);
    }
    if (const auto error = misfit(wanted.value, zone.zone.policy); !error.empty()) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, error);
    }
    if (const auto error = wrong_end(main_conf(r).fleet->shared(), wanted.time); !error.empty()) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, error);
    }
    if (zone.zone.override_slot == nullptr) {
        return send_error(
            r, NGX_HTTP_CONFLICT,
            "overrides of this zone do not apply until nginx is restarted, expected at most 1024 "
            "zones");
    }
    const OverrideTable table = main_conf(r).fleet->shared().table();
    const bool known = table.find(OverrideTable::zone_hash(zone.zone.name), key).has_value();
    if (!known && !table.has_room(key.size())) {
        return send_error(
            r, NGX_HTTP_CONFLICT,
            "no room for another override, expected a larger size= of ratelimit_fleet");
    }
    return change_override(
        r, zone, key, Change::set, fleet::begin_stored(wanted, author(r)), wanted.time);
}

/// Appends a buffer of the body. False: it could not be read.
bool append(std::string& text, const ngx_buf_t& buffer)
{
    if (!buffer.in_file) {
        text.append(
            reinterpret_cast<const char*>(buffer.pos),
            static_cast<std::size_t>(buffer.last - buffer.pos));
        return true;
    }
    std::string part(static_cast<std::size_t>(buffer.file_last - buffer.file_pos), '\0');
    const ssize_t read = ngx_read_file(
        buffer.file, reinterpret_cast<u_char*>(part.data()), part.size(), buffer.file_pos);
    text += part;
    return read == static_cast<ssize_t>(part.size());
}

ngx_int_t send_too_large(ngx_http_request_t* r)
{
    return send_error(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE, "the body is larger than 4096 bytes");
}

/// A PUT while its body is read. It lives in the request's pool, where the handler of the body
/// finds it by its cleanup handler.
struct Put {
    const ZoneConf& zone;
    std::string key;

    static void destroy(void* data) noexcept { static_cast<Put*>(data)->~Put(); }

    static bool add(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key)
    {
        ngx_pool_cleanup_t* cleanup = ngx_pool_cleanup_add(r->pool, sizeof(Put));
        if (cleanup == nullptr) {
            return false;
        }
        new (cleanup->data) Put{ zone, std::string(key) };
        cleanup->handler = destroy;
        return true;
    }

    static const Put* of(ngx_http_request_t* r) noexcept
    {
        for (auto* cleanup = r->pool->cleanup; cleanup != nullptr; cleanup = cleanup->next) {
            if (cleanup->handler == destroy) {
                return static_cast<const Put*>(cleanup->data);
            }
        }
        return nullptr;
    }
};

ngx_int_t handle_body(ngx_http_request_t* r)
{
    const Put* put = Put::of(r);
    std::string body;
    for (auto* part = r->request_body == nullptr ? nullptr : r->request_body->bufs;
         put != nullptr && part != nullptr; part = part->next) {
        const auto size = static_cast<std::size_t>(ngx_buf_size(part->buf));
        if (body.size() + size > fleet::longest_text) {
            return send_too_large(r);
        }
        if (!append(body, *part->buf)) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }
    return put == nullptr ? ngx_int_t{ NGX_HTTP_INTERNAL_SERVER_ERROR }
                          : set_override(r, put->zone, put->key, body);
}

void body_read(ngx_http_request_t* r) noexcept
{
    ngx_http_finalize_request(
        r, nginx::guarded(r->connection->log, ngx_int_t{ NGX_HTTP_INTERNAL_SERVER_ERROR }, [r] {
            return handle_body(r);
        }));
}

ngx_int_t put_override(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key)
{
    if (r->headers_in.content_length_n > static_cast<off_t>(fleet::longest_text)) {
        const ngx_int_t rc = ngx_http_discard_request_body(r);
        return rc == NGX_OK ? send_too_large(r) : rc;
    }
    if (!Put::add(r, zone, key)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    const ngx_int_t rc = ngx_http_read_client_request_body(r, body_read);
    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : ngx_int_t{ NGX_DONE };
}

}  // namespace

ngx_int_t handle_override(ngx_http_request_t* r, const ApiPath& path)
{
    MainConf& conf = main_conf(r);
    const bool puts = r->method == NGX_HTTP_PUT;
    if (!puts) {
        if (const ngx_int_t rc = ngx_http_discard_request_body(r); rc != NGX_OK) {
            return rc;
        }
    }
    const auto fail = [r, puts](ngx_uint_t status, std::string_view error) {
        const ngx_int_t rc = puts ? ngx_http_discard_request_body(r) : ngx_int_t{ NGX_OK };
        return rc == NGX_OK ? send_error(r, status, error) : rc;
    };
    if (conf.fleet == nullptr) {
        return fail(NGX_HTTP_NOT_FOUND, "overrides need the directive ratelimit_fleet");
    }
    const ZoneConf* zone = path.zone ? conf.zone_named(*path.zone) : nullptr;
    if (path.zone && zone == nullptr) {
        return fail(NGX_HTTP_NOT_FOUND, "no such zone");
    }
    if (path.view == View::overrides || zone == nullptr) {  // only a list can be of all zones
        return list_overrides(r, zone);
    }
    std::string_view key;
    if (path.view == View::override_key) {
        const NamedKey named = named_key(r->pool, *zone, path);
        if (!named.error.empty()) {
            return fail(NGX_HTTP_BAD_REQUEST, named.error);
        }
        if (named.key.data() == nullptr) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        key = named.key;
    }
    switch (r->method) {
    case NGX_HTTP_PUT:
        return put_override(r, *zone, key);
    case NGX_HTTP_DELETE:
        return change_override(r, *zone, key, Change::remove, fleet::begin_noted(author(r)), {});
    default:
        return show_override(r, *zone, key);
    }
}

}  // namespace ratelimit::http

#include "http/api/api_handler.h"

#include "conf/conf.h"
#include "http/api/change_guard.h"
#include "http/api/fleet_view.h"
#include "http/api/key_views.h"
#include "http/api/named_key.h"
#include "http/api/override_views.h"
#include "http/api/path.h"
#include "http/api/response.h"
#include "http/api/views.h"
#include "limit/rate_text.h"
#include "nginx/guarded.h"
#include "nginx/pool.h"
#include "nginx/text.h"

#include <string>

#include "dashboard_page.h"

namespace ratelimit::http {

namespace {

using nginx::view;
using View = ApiPath::View;

const ngx_http_core_loc_conf_t& core_conf(ngx_http_request_t* r) noexcept
{
    return *static_cast<const ngx_http_core_loc_conf_t*>(
        ngx_http_get_module_loc_conf(r, ngx_http_core_module));
}

ngx_int_t send_dashboard(ngx_http_request_t* r)
{
    static const std::string policy = "default-src 'none'; script-src '"
        + std::string(dashboard::script_hash) + "'; style-src '"
        + std::string(dashboard::style_hash)
        + "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'";
    const ApiHeader header{ "Content-Security-Policy", policy };
    return send_response(
        r, NGX_HTTP_OK, "text/html; charset=utf-8", dashboard::page, { &header, 1 });
}

/// The path as a URL has it, percent-encoded.
std::string escaped_path(const ngx_str_t& path)
{
    const std::uintptr_t more = ngx_escape_uri(nullptr, path.data, path.len, NGX_ESCAPE_URI);
    std::string text(path.len + 2 * more, '\0');
    ngx_escape_uri(reinterpret_cast<u_char*>(text.data()), path.data, path.len, NGX_ESCAPE_URI);
    return text;
}

/// Redirects to the same path with a slash at its end: the page's links are relative to it.
ngx_int_t send_slash(ngx_http_request_t* r)
{
    std::string path = escaped_path(core_conf(r).name) + "/";
    if (r->args.len > 0) {
        path += "?";
        path += view(r->args);
    }
    const ngx_str_t target = nginx::copied(r->pool, path);
    if (target.data != nullptr) {
        r->headers_out.location =
            nginx::add_header(r->headers_out.headers, nginx::borrowed("Location"), target);
    }
    return r->headers_out.location == nullptr ? NGX_HTTP_INTERNAL_SERVER_ERROR
                                              : NGX_HTTP_MOVED_PERMANENTLY;
}

ngx_int_t send_key(ngx_http_request_t* r, const ZoneConf& zone, const ApiPath& path)
{
    const auto [key, error] = named_key(r->pool, zone, path);
    if (!error.empty()) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, error);
    }
    if (key.data() == nullptr) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    return r->method == NGX_HTTP_DELETE ? free_key(r, zone, key, view(r->args))
                                        : show_key(r, zone, key, view(r->args));
}

/// Of a zone or, with an empty name, of the node.
ngx_int_t send_history(ngx_http_request_t* r, std::string_view zone, const ZoneMemory& memory)
{
    const auto since = api_argument(view(r->args), "since");
    const auto time = since.value ? parse_number(*since.value, 0, INT64_MAX) : std::nullopt;
    if (since.given && !time) {
        return send_error(
            r, NGX_HTTP_BAD_REQUEST, "invalid since=, expected whole seconds since the epoch");
    }
    return send_response(r, NGX_HTTP_OK, json_type, history_json(zone, memory, time.value_or(0)));
}

ngx_int_t send_zones(ngx_http_request_t* r, const ApiPath& path, bool writable)
{
    MainConf& conf = main_conf(r);
    if (!path.zone) {
        return send_response(r, NGX_HTTP_OK, json_type, zones_json(conf, writable));
    }
    const ZoneConf* zone = conf.zone_named(*path.zone);
    if (zone == nullptr) {
        return send_error(r, NGX_HTTP_NOT_FOUND, "no such zone");
    }
    switch (path.view) {
    case View::key:
        return send_key(r, *zone, path);
    case View::history:
        return send_history(r, zone->zone.name, zone->zone.memory());
    default:
        return send_response(r, NGX_HTTP_OK, json_type, zone_json(*zone));
    }
}

ngx_int_t send_view(ngx_http_request_t* r, const ApiPath& path, bool writable)
{
    MainConf& conf = main_conf(r);
    for (RedisBlock& block : conf.redis) {
        block.report();  // this worker's figures are current; other workers report once a second
    }
    switch (path.view) {
    case View::dashboard:
        return send_dashboard(r);
    case View::metrics:
        return send_response(r, NGX_HTTP_OK, metrics_type, metrics_text(conf));
    case View::redis:
        return send_response(r, NGX_HTTP_OK, json_type, redis_json(conf));
    case View::fleet:
        return show_fleet(r);
    case View::history:
        if (!path.zone) {
            return conf.requests == nullptr ? send_error(r, NGX_HTTP_NOT_FOUND, "no zones")
                                            : send_history(r, {}, ZoneMemory(*conf.requests));
        }
        [[fallthrough]];
    default:
        return send_zones(r, path, writable);
    }
}

/// The API's prefix. For an exact location, such as /status/metrics, it is the folder.
std::string_view prefix_of(const ngx_http_core_loc_conf_t& location) noexcept
{
    const auto name = view(location.name);
    return location.exact_match ? name.substr(0, name.rfind('/') + 1) : name;
}

bool is_override(View view) noexcept
{
    return view == View::override_key || view == View::override_zone || view == View::overrides;
}

/// The methods that a view has, as the Allow header lists them.
std::string_view methods_of(View view, bool writable) noexcept
{
    if (view == View::override_key || view == View::override_zone) {
        return writable ? "GET, HEAD, PUT, DELETE" : "GET, HEAD";
    }
    return view == View::key && writable ? "GET, HEAD, DELETE" : "GET, HEAD";
}

bool is_allowed(ngx_uint_t method, std::string_view methods) noexcept
{
    switch (method) {
    case NGX_HTTP_GET:
    case NGX_HTTP_HEAD:
        return methods.starts_with("GET");
    case NGX_HTTP_PUT:
        return methods.find("PUT") != std::string_view::npos;
    case NGX_HTTP_DELETE:
        return methods.ends_with("DELETE");
    default:
        return false;
    }
}

bool changes(ngx_uint_t method) noexcept
{
    return method == NGX_HTTP_PUT || method == NGX_HTTP_DELETE;
}

ngx_int_t refuse_other_origin(ngx_http_request_t* r)
{
    const ngx_int_t rc = ngx_http_discard_request_body(r);
    return rc == NGX_OK
        ? send_error(r, NGX_HTTP_FORBIDDEN, "a page of another origin must not change anything")
        : rc;
}

ngx_int_t handle(ngx_http_request_t* r)
{
    const bool writable = location_conf(r).api == api_writes;
    const auto path = parse_api_path(
        prefix_of(core_conf(r)), view(r->uri), view(r->unparsed_uri), !r->valid_unparsed_uri,
        view(r->args));

    const std::string_view methods = methods_of(path.view, writable);
    const bool allowed = is_allowed(r->method, methods);
    if (allowed && changes(r->method) && is_of_other_origin(r)) {
        return refuse_other_origin(r);
    }
    if (allowed && is_override(path.view)) {
        return handle_override(r, path);
    }
    if (const ngx_int_t rc = ngx_http_discard_request_body(r); rc != NGX_OK) {
        return rc;
    }
    if (path.view == View::nothing) {
        return send_error(r, NGX_HTTP_NOT_FOUND, "no such page");
    }
    if (path.view == View::no_key) {
        return send_error(
            r, NGX_HTTP_BAD_REQUEST,
            "no key, or one that a path cannot carry: expected an argument key=, hash= or id=");
    }
    if (!allowed) {
        const ApiHeader allow{ "Allow", methods };
        return send_error(r, NGX_HTTP_NOT_ALLOWED, "method not allowed", { &allow, 1 });
    }
    return path.view == View::slash_missing ? send_slash(r) : send_view(r, path, writable);
}

}  // namespace

ngx_int_t api_handler(ngx_http_request_t* r) noexcept
{
    return nginx::guarded(
        r->connection->log, ngx_int_t{ NGX_HTTP_INTERNAL_SERVER_ERROR }, [r] { return handle(r); });
}

}  // namespace ratelimit::http

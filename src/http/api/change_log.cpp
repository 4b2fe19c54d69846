#include "http/api/change_log.h"

#include "http/api/views.h"
#include "http/shown_key.h"
#include "nginx/text.h"

namespace ratelimit::http {

namespace {

using nginx::view;

constexpr std::size_t longest_user = 64;

/// What an override sets, and for how long.
std::string described(const fleet::StoredOverride& stored)
{
    const Override& value = stored.value;
    std::string text;
    switch (value.kind) {
    case Override::Kind::rate:
        text = "rate " + escaped(stored.rate_text);
        if (value.burst) {
            text += " burst " + std::to_string(*value.burst);
        }
        break;
    case Override::Kind::concurrency:
        text = "concurrency " + std::to_string(value.rate.quota);
        break;
    case Override::Kind::block:
        text = "block";
        break;
    default:
        text = "unlimited";
        break;
    }
    text += value.end.count() == 0
        ? " until it is taken back"
        : " for " + std::to_string((value.end - stored.at).count() / 1000) + " s";
    return stored.reason.empty() ? text : text + ", reason: \"" + escaped(stored.reason) + "\"";
}

}  // namespace

std::string author(ngx_http_request_t* r)
{
    std::string text =
        std::string(node_name(main_conf(r))) + " " + std::string(view(r->connection->addr_text));
    ngx_http_complex_value_t* user = location_conf(r).api_user;
    ngx_str_t value{};
    if (user != nullptr && ngx_http_complex_value(r, user, &value) == NGX_OK && value.len > 0) {
        text += " " + std::string(view(value).substr(0, longest_user));
    }
    return text;
}

std::string escaped(std::string_view bytes)
{
    std::string shown(4 * bytes.size(), '\0');
    return std::string(nginx::escaped_for_log(bytes, shown.data(), shown.size()));
}

void log_change(
    ngx_http_request_t* r, std::string_view what, const ZoneConf& zone, std::string_view key,
    const fleet::StoredOverride* set)
{
    std::string line = std::string(what) + ", zone \"" + zone.zone.name + "\"";
    if (!key.empty()) {
        line += ", key \"" + shown_key(&zone.zone, key) + "\"";
    }
    line += ", by \"" + escaped(author(r)) + "\"";
    if (set != nullptr) {
        line += ": " + described(*set);
    }
    const ngx_str_t text = nginx::borrowed(line);
    ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0, "ratelimit: %V", &text);
}

}  // namespace ratelimit::http

#include "http/api/fleet_query.h"
#include "http/api/json_text.h"
#include "http/api/override_json.h"
#include "http/api/override_queries.h"
#include "http/api/path.h"
#include "http/shown_key.h"
#include "limit/percent_text.h"
#include "limit/rate_text.h"
#include "nginx/pool.h"
#include "nginx/text.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ratelimit::http {

namespace {

constexpr std::int64_t default_page = 100;
constexpr std::int64_t largest_page = 1000;

char lower(char character) noexcept
{
    return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a')
                                                : character;
}

std::string lower(std::string text)
{
    std::transform(
        text.begin(), text.end(), text.begin(), [](char character) { return lower(character); });
    return text;
}

/// A page of the overrides of a zone, or of all.
class ListQuery final : public FleetQuery<fleet::ListCall> {
public:
    struct Wanted {
        const ZoneConf* zone;  // null: all zones
        std::int64_t after;
        std::int64_t most;
        std::string search;  // in lower case; empty: all
    };

    ListQuery(ngx_http_request_t* r, Wanted wanted)
        : FleetQuery(
            r, main_conf(r).fleet->scripts().list, main_conf(r).fleet->keys(),
            wanted.zone == nullptr ? std::string{} : wanted.zone->zone.name, wanted.after,
            wanted.most),
          wanted_(std::move(wanted))
    {
    }

private:
    using Item = fleet::OverridePage::Item;

    ngx_int_t show() override
    {
        JsonText json;
        json.begin_object();
        write_zone(json);
        json.begin_array("overrides");
        for (const Item& item : page_.items) {
            if (!item.stored.value.has_ended(page_.now)) {
                write_item(json, item);
            }
        }
        json.end_array();
        if (page_.next == 0) {
            json.null("next");
        } else {
            json.number("next", page_.next);
        }
        json.end_object();
        return send_response(r_, NGX_HTTP_OK, json_type, json.str() + "\n");
    }

    void write_zone(JsonText& json) const
    {
        std::uint64_t count = 0;
        if (wanted_.zone != nullptr) {
            json.text("zone", wanted_.zone->zone.name);
            count = override_count(wanted_.zone->zone);
        } else {
            json.null("zone");
            for (const ZoneConf& zone : main_conf(r_).zones) {
                count += override_count(zone.zone);
            }
        }
        json.number("count", count);
    }

    void write_item(JsonText& json, const Item& item) const
    {
        const ZoneConf* zone = main_conf(r_).zone_named(item.zone);
        const std::string key =
            item.key.empty() ? "" : shown_key(zone == nullptr ? nullptr : &zone->zone, item.key);
        const std::string text = item.zone + '\n' + key + '\n' + item.stored.rate_text + '\n'
            + item.stored.by + '\n' + item.stored.reason;
        if (lower(text).find(wanted_.search) == std::string::npos) {
            return;
        }
        json.begin_object().text("zone", item.zone);
        if (item.key.empty()) {
            json.null("key").null("id");
        } else {
            json.text("key", key).text("id", percent_encoded(item.key));
        }
        write_override(json, item.stored, page_.now);
        json.end_object();
    }

    void listed(fleet::OverridePage page) noexcept override
    {
        page_ = std::move(page);
        answered();
    }

    const Wanted wanted_;
    fleet::OverridePage page_;
};

}  // namespace

ngx_int_t list_overrides(ngx_http_request_t* r, const ZoneConf* zone)
{
    const auto number = [&](std::string_view name, std::int64_t otherwise, std::int64_t most) {
        const auto argument = api_argument(nginx::view(r->args), name);
        return argument.given ? parse_number(argument.value.value_or(""), 0, most)
                              : std::optional(otherwise);
    };
    const auto after = number("after", 0, std::int64_t{ 1 } << 52U);
    const auto most = number("limit", default_page, largest_page);
    if (!after || !most || *most == 0) {
        return send_error(
            r, NGX_HTTP_BAD_REQUEST,
            "expected after= with the \"next\" of a page, and limit= with a number from 1 to 1000");
    }
    const auto search = api_argument(nginx::view(r->args), "search");
    if (search.given && !search.value) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, "search= is not percent-encoded text");
    }
    auto* query = nginx::make<ListQuery>(
        r->pool, r, ListQuery::Wanted{ zone, *after, *most, lower(search.value.value_or("")) });
    return query == nullptr ? ngx_int_t{ NGX_ERROR } : query->ask();
}

}  // namespace ratelimit::http

#include "http/api/fleet_query.h"
#include "http/api/key_peek.h"
#include "http/api/override_json.h"
#include "http/api/override_queries.h"
#include "http/api/path.h"
#include "http/shown_key.h"
#include "limit/json_text.h"
#include "limit/rate_text.h"
#include "nginx/text.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

struct Wanted {
    const ZoneConf* zone;  // null: all zones
    std::int64_t after;
    std::int64_t most;
    std::string search;  // in lower case; empty: all
};

using Page = fleet::OverridePage;

std::string shown_key_of(const ZoneConf* zone, const Page::Item& item)
{
    return item.key.empty() ? "" : shown_key(zone == nullptr ? nullptr : &zone->zone, item.key);
}

/// The limit that it sets, in the words of the dashboard and of its members.
std::string words_of(const fleet::StoredOverride& stored)
{
    const Override& value = stored.value;
    switch (value.kind) {
    case Override::Kind::rate:
        return stored.rate_text + (value.burst ? ", burst " + std::to_string(*value.burst) : "");
    case Override::Kind::concurrency:
        return "concurrency, " + std::to_string(value.rate.quota) + " at one time";
    case Override::Kind::block:
        return "blocked";
    case Override::Kind::unlimited:
        return "unlimited, no limit";
    default:
        return "unknown";
    }
}

/// Whether an override of the page is listed.
bool is_wanted(
    const Page& page, const Page::Item& item, const ZoneConf* zone, std::string_view search)
{
    const std::string text = item.zone + '\n' + shown_key_of(zone, item) + '\n'
        + words_of(item.stored) + '\n' + item.stored.by + '\n' + item.stored.reason;
    return !item.stored.value.has_ended(page.now) && lower(text).find(search) != std::string::npos;
}

/// Sends a page of overrides, after it has asked Redis whether anything is counted under the first
/// hundred of their keys.
class ListAnswer final : public RedisQuery {
public:
    ListAnswer(ngx_http_request_t* r, const Wanted& wanted, Page page)
        : RedisQuery(r), wanted_(wanted), page_(std::move(page))
    {
        for (const Page::Item& item : page_.items) {
            const ZoneConf* zone = main_conf(r).zone_named(item.zone);
            if (is_wanted(page_, item, zone, wanted_.search)) {
                listed_.push_back({ &item, zone });
            }
        }
    }

    ngx_int_t ask()
    {
        std::size_t asked = 0;
        for (Listed& listed : listed_) {
            if (asked < most_counted && listed.zone != nullptr && !listed.item->key.empty()) {
                ++asked;
                count(listed);
            }
        }
        return waiting_ == 0 ? respond() : wait();
    }

private:
    static constexpr std::size_t most_counted = 100;

    class Count final : public KeyState {
    public:
        Count(ListAnswer& answer, const ZoneConf& zone, std::string_view key, const Policy& policy)
            : KeyState(zone, key, policy), answer_(answer)
        {
        }

    private:
        void known() noexcept override { answer_.one_known(); }

        ListAnswer& answer_;
    };

    struct Listed {
        const Page::Item* item;
        const ZoneConf* zone;  // null: this node does not have it
        std::optional<bool> counted{};
        std::unique_ptr<Count> asked{};
    };

    /// Finds out in this node's memory, or asks Redis.
    void count(Listed& listed)
    {
        const ZoneConf& zone = *listed.zone;
        const std::string& key = listed.item->key;
        const auto policy = counting_policy(zone, key, listed.item->stored.value);
        if (policy && zone.redis == nullptr) {
            listed.counted = is_counted(zone, key, *policy, peek_local(zone, key, *policy));
        } else if (policy) {
            listed.asked = std::make_unique<Count>(*this, zone, key, *policy);
            waiting_ += listed.asked->send() ? 1 : 0;
        }
    }

    void one_known() noexcept
    {
        if (--waiting_ == 0) {
            answered();
        }
    }

    ngx_int_t respond() override
    {
        JsonText json;
        json.begin_object();
        write_zone(json);
        json.begin_array("overrides");
        for (const Listed& listed : listed_) {
            write_item(json, listed);
        }
        json.end_array();
        json.number("next", or_null(page_.next));
        return send_response(r_, NGX_HTTP_OK, json_type, json.finish());
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

    void write_item(JsonText& json, const Listed& listed) const
    {
        const Page::Item& item = *listed.item;
        json.begin_object().text("zone", item.zone);
        write_key(json, listed.zone == nullptr ? nullptr : &listed.zone->zone, item.key);
        write_override(json, item.stored, page_.now);
        if (!item.key.empty() && listed.zone != nullptr) {
            const auto counted = listed.asked ? listed.asked->counted() : listed.counted;
            write_counted(json, *listed.zone, item.key, counted);
        } else {
            json.null("counted").null("note");
        }
        json.end_object();
    }

    const Wanted wanted_;
    const Page page_;
    std::vector<Listed> listed_;
    std::size_t waiting_ = 0;  // for Redis
};

/// A page of the overrides of a zone, or of all.
class ListQuery final : public FleetQuery<fleet::ListCall> {
public:
    ListQuery(ngx_http_request_t* r, Wanted wanted)
        : FleetQuery(
            r, main_conf(r).fleet->scripts().list, main_conf(r).fleet->keys(),
            wanted.zone == nullptr ? std::string{} : wanted.zone->zone.name, wanted.after,
            wanted.most),
          wanted_(std::move(wanted))
    {
    }

private:
    ngx_int_t show() override { return http::ask<ListAnswer>(r_, wanted_, std::move(page_)); }

    void listed(Page page) noexcept override
    {
        page_ = std::move(page);
        answered();
    }

    const Wanted wanted_;
    Page page_;
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
    return ask<ListQuery>(r, Wanted{ zone, *after, *most, lower(search.value.value_or("")) });
}

}  // namespace ratelimit::http

#include "http/api/override_queries.h"

#include "http/api/change_condition.h"
#include "http/api/change_log.h"
#include "http/api/json_text.h"
#include "http/api/path.h"
#include "http/api/redis_query.h"
#include "http/api/response.h"
#include "limit/percent_text.h"
#include "limit/rate_text.h"
#include "nginx/pool.h"
#include "nginx/text.h"
#include "node/clocks.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace ratelimit::http {

namespace {

using fleet::ChangeCall;
using fleet::ChangeId;
using Change = ChangeCall::Change;
using nginx::view;

constexpr std::string_view no_answer = "Redis does not answer";
constexpr std::string_view answered_error = "Redis answered with an error";
constexpr std::string_view slot_migrating =
    "the cluster is moving the keys of the fleet, send the change again";
constexpr std::string_view outcome_unknown =
    "Redis has not answered: the change may be made or not, read the override or send it again";
constexpr std::string_view differs =
    "the override is not the one of If-Match or If-None-Match: read it again";
constexpr std::int64_t default_page = 100;
constexpr std::int64_t largest_page = 1000;

/// Writes an override's members. `now`: by Redis's clock.
void write_override(JsonText& json, const fleet::StoredOverride& stored, milliseconds now)
{
    const Override& value = stored.value;
    switch (value.kind) {
    case Override::Kind::rate:
        json.text("rate", stored.rate_text);
        if (value.burst) {
            json.number("burst", *value.burst);
        }
        break;
    case Override::Kind::concurrency:
        json.number("concurrency", value.rate.quota);
        break;
    case Override::Kind::block:
        json.flag("block", true);
        break;
    case Override::Kind::unlimited:
        json.flag("unlimited", true);
        break;
    default:
        json.flag("unknown", true);
        break;
    }
    const auto seconds = [](milliseconds time) {
        return std::chrono::duration<double>(time).count();
    };
    if (value.end.count() != 0) {
        json.seconds("until", seconds(value.end))
            .seconds("for_seconds_left", seconds(std::max(value.rest(now), milliseconds{ 0 })));
    } else {
        json.null("until").null("for_seconds_left");
    }
    json.text("by", stored.by);
    if (stored.reason.empty()) {
        json.null("reason");
    } else {
        json.text("reason", stored.reason);
    }
    json.seconds("at", seconds(stored.at));
}

/// The override of a key or, if `key` is empty, of the whole zone.
ChangeId id_of(const ZoneConf& zone, std::string_view key) noexcept
{
    return { key.empty() ? ChangeId::Kind::zone_override : ChangeId::Kind::key_override,
             zone.zone.name, key };
}

ngx_int_t send_failure(ngx_http_request_t* r, redis::Failure failure)
{
    const auto text = [failure] {
        switch (failure) {
        case redis::Failure::error_reply:
            return answered_error;
        case redis::Failure::slot_migrating:
            return slot_migrating;
        default:
            return no_answer;
        }
    };
    return send_error(r, NGX_HTTP_SERVICE_UNAVAILABLE, text());
}

/// A query that is one call to the fleet's Redis. A call that fails is answered with 503.
template <class FleetCall>
class FleetQuery : public RedisQuery, protected FleetCall {
public:
    template <class... Parameters>
    explicit FleetQuery(ngx_http_request_t* r, Parameters&&... parameters)
        : RedisQuery(r), FleetCall(std::forward<Parameters>(parameters)...)
    {
    }

    ngx_int_t ask()
    {
        return main_conf(r_).fleet->redis().client().send(*this)
            ? wait()
            : send_error(r_, NGX_HTTP_SERVICE_UNAVAILABLE, no_answer);
    }

protected:
    virtual ngx_int_t show() = 0;
    virtual ngx_int_t show_failure(redis::Failure failure) { return send_failure(r_, failure); }

private:
    ngx_int_t respond() final { return failure_ ? show_failure(*failure_) : show(); }
    void on_failure(redis::Failure failure) noexcept final
    {
        failure_ = failure;
        answered();
    }

    std::optional<redis::Failure> failure_;
};

/// Changes an override in Redis, and waits until the reply.
class OverrideQuery final : public FleetQuery<ChangeCall> {
public:
    OverrideQuery(
        ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, Change change,
        std::string text, milliseconds lasts, std::string condition)
        : FleetQuery(
            r, main_conf(r).fleet->scripts().change, main_conf(r).fleet->keys(), change,
            id_of(zone, key).text(), std::move(text), lasts, std::move(condition)),
          zone_(zone),
          key_(key),
          removes_(change == Change::remove)
    {
    }

private:
    ngx_int_t show() override
    {
        if (differs_) {
            return send_error(r_, NGX_HTTP_PRECONDITION_FAILED, differs);
        }
        main_conf(r_).fleet->hurry();
        if (removes_) {
            if (!found_) {
                return send_error(r_, NGX_HTTP_NOT_FOUND, "no such override");
            }
            log_change(r_, "override taken back", zone_, key_);
            return send_response(r_, NGX_HTTP_NO_CONTENT, {}, {});
        }
        if (!found_) {
            return send_error(r_, NGX_HTTP_CONFLICT, "the fleet has too many overrides");
        }
        const auto stored = fleet::parse_stored(stored_);
        log_change(r_, "override set", zone_, key_, &stored);
        JsonText json;
        json.begin_object().text("zone", zone_.zone.name);
        if (key_.empty()) {
            json.null("key");
        } else {
            json.text("key", escaped(key_));
        }
        write_override(json, stored, stored.at);
        json.end_object();
        return send_tagged(r_, json.str() + "\n", stored_);
    }

    ngx_int_t show_failure(redis::Failure failure) override
    {
        if (!maybe_executed(failure)) {
            return send_failure(r_, failure);
        }
        log_change(
            r_, removes_ ? "override perhaps taken back" : "override perhaps set", zone_, key_);
        return send_error(r_, NGX_HTTP_GATEWAY_TIME_OUT, outcome_unknown);
    }

    void outdated() noexcept override
    {
        differs_ = true;
        answered();
    }

    void changed(bool found, std::string_view text) noexcept override
    {
        nginx::guarded(ngx_cycle->log, [&] {
            found_ = found;
            stored_ = text;
        });
        answered();
    }

    const ZoneConf& zone_;
    const std::string key_;
    const bool removes_;
    bool found_ = false;
    bool differs_ = false;
    std::string stored_;
};

/// Writes the event that a key was freed.
class FreedQuery final : public RedisQuery, private ChangeCall {
public:
    FreedQuery(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key)
        : RedisQuery(r),
          ChangeCall(
              main_conf(r).fleet->scripts().change, main_conf(r).fleet->keys(), Change::free,
              ChangeId{ ChangeId::Kind::freed_key, zone.zone.name, key }.text())
    {
    }

    ngx_int_t ask()
    {
        return main_conf(r_).fleet->redis().client().send(*this) ? wait() : respond();
    }

private:
    ngx_int_t respond() override
    {
        return written_ ? send_response(r_, NGX_HTTP_NO_CONTENT, {}, {})
                        : send_error(
                            r_, NGX_HTTP_SERVICE_UNAVAILABLE,
                            "the key is free on this node, but the fleet's Redis does not answer: "
                            "other nodes may remember its refusal");
    }
    void changed(bool, std::string_view) noexcept override
    {
        written_ = true;
        answered();
    }
    void on_failure(redis::Failure) noexcept override { answered(); }

    bool written_ = false;
};

/// One override, as Redis has it.
class OverrideLookup final : public FleetQuery<fleet::LookupCall> {
public:
    OverrideLookup(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key)
        : FleetQuery(r, main_conf(r).fleet->keys(), id_of(zone, key).text()), zone_(zone)
    {
    }

private:
    ngx_int_t show() override
    {
        const milliseconds now = main_conf(r_).fleet->shared().redis_time(node_clock.monotonic());
        const auto stored = fleet::parse_stored(stored_);
        if (stored.value.has_ended(now)) {
            stored_.clear();
        }
        JsonText json;
        json.begin_object().text("zone", zone_.zone.name);
        if (stored_.empty()) {
            json.null("override");
        } else {
            json.begin_object("override");
            write_override(json, stored, now);
            json.end_object();
        }
        json.end_object();
        return send_tagged(r_, json.str() + "\n", stored_);
    }

    void found(std::string_view text) noexcept override
    {
        nginx::guarded(ngx_cycle->log, [&] { stored_ = text; });
        answered();
    }

    const ZoneConf& zone_;
    std::string stored_;
};

/// A page of a zone's overrides.
class ListQuery final : public FleetQuery<fleet::ListCall> {
public:
    ListQuery(ngx_http_request_t* r, const ZoneConf& zone, std::int64_t after, std::int64_t most)
        : FleetQuery(
            r, main_conf(r).fleet->scripts().list, main_conf(r).fleet->keys(), zone.zone.name,
            after, most),
          zone_(zone)
    {
    }

private:
    ngx_int_t show() override
    {
        const OverrideTable::ZoneSlot* slot = zone_.zone.override_slot;
        const std::uint64_t count = slot == nullptr ? std::uint64_t{ 0 } : slot->count();
        JsonText json;
        json.begin_object().text("zone", zone_.zone.name).number("count", count);
        json.begin_array("overrides");
        for (const auto& item : page_.items) {
            if (item.stored.value.has_ended(page_.now)) {
                continue;
            }
            json.begin_object();
            if (item.key.empty()) {
                json.null("key").null("id");
            } else {
                json.text("key", escaped(item.key)).text("id", percent_encoded(item.key));
            }
            write_override(json, item.stored, page_.now);
            json.end_object();
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
    void listed(fleet::OverridePage page) noexcept override
    {
        page_ = std::move(page);
        answered();
    }

    const ZoneConf& zone_;
    fleet::OverridePage page_;
};

}  // namespace

ngx_int_t list_overrides(ngx_http_request_t* r, const ZoneConf& zone)
{
    const auto number = [&](std::string_view name, std::int64_t otherwise, std::int64_t most) {
        const auto argument = api_argument(view(r->args), name);
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
    auto* query = nginx::make<ListQuery>(r->pool, r, zone, *after, *most);
    return query == nullptr ? ngx_int_t{ NGX_ERROR } : query->ask();
}

ngx_int_t show_override(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key)
{
    auto* query = nginx::make<OverrideLookup>(r->pool, r, zone, key);
    return query == nullptr ? ngx_int_t{ NGX_ERROR } : query->ask();
}

ngx_int_t change_override(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, ChangeCall::Change which,
    std::string text, milliseconds lasts)
{
    auto condition = change_condition(r);
    if (!condition) {
        return send_error(
            r, NGX_HTTP_BAD_REQUEST,
            "expected If-Match with one ETag of an override or *, or If-None-Match with *");
    }
    auto* query = nginx::make<OverrideQuery>(
        r->pool, r, zone, key, which, std::move(text), lasts, std::move(*condition));
    return query == nullptr ? ngx_int_t{ NGX_ERROR } : query->ask();
}

ngx_int_t announce_freed(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key)
{
    log_change(r, "key freed", zone, key);
    if (main_conf(r).fleet == nullptr) {
        return send_response(r, NGX_HTTP_NO_CONTENT, {}, {});
    }
    auto* query = nginx::make<FreedQuery>(r->pool, r, zone, key);
    return query == nullptr ? ngx_int_t{ NGX_ERROR } : query->ask();
}

}  // namespace ratelimit::http

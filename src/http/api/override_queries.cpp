#include "http/api/override_queries.h"

#include "http/api/change_condition.h"
#include "http/api/change_log.h"
#include "http/api/fleet_query.h"
#include "http/api/key_peek.h"
#include "http/api/override_json.h"
#include "limit/json_text.h"

#include <optional>
#include <utility>

namespace ratelimit::http {

namespace {

using fleet::ChangeCall;
using fleet::ChangeId;
using Change = ChangeCall::Change;

constexpr std::string_view outcome_unknown =
    "Redis has not answered: the change may be made or not, read the override or send it again";
constexpr std::string_view differs =
    "the override is not the one of If-Match or If-None-Match: read it again";

/// The override of a key or, if `key` is empty, of the whole zone.
ChangeId id_of(const ZoneConf& zone, std::string_view key) noexcept
{
    return { key.empty() ? ChangeId::Kind::zone_override : ChangeId::Kind::key_override,
             zone.zone.name, key };
}

/// Begins the JSON of an override: its zone and key, and what it is; `stored` null: there is none.
JsonText begin_answer(
    const ZoneConf& zone, std::string_view key, const fleet::StoredOverride* stored,
    milliseconds now)
{
    JsonText json;
    json.begin_object().text("zone", zone.zone.name);
    write_key(json, &zone.zone, key);
    if (stored == nullptr) {
        json.null("override");
    } else {
        json.begin_object("override");
        write_override(json, *stored, now);
        json.end_object();
    }
    return json;
}

/// Sends the override of a key, and whether anything is counted under the key.
class OverrideAnswer final : public KeyPeek {
public:
    OverrideAnswer(
        ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, const Policy& policy,
        JsonText json, std::string stored)
        : KeyPeek(r, zone, key, policy), json_(std::move(json)), stored_(std::move(stored))
    {
    }

    static ngx_int_t send(
        ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, JsonText json,
        std::string_view stored, std::optional<bool> counted)
    {
        write_counted(json, zone, key, counted);
        return send_tagged(r, json.finish(), stored);
    }

private:
    ngx_int_t peeked(const Verdict*) override
    {
        return send(r_, zone_, key_, std::move(json_), stored_, counted());
    }

    JsonText json_;
    const std::string stored_;
};

/// Sends an override, if there is one, and of a key whether anything is counted under it by this
/// limit. `policy`: empty if it is not known.
ngx_int_t send_override(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, const std::string& text,
    milliseconds now, const std::optional<Policy>& policy)
{
    const auto stored = fleet::parse_stored(text);
    JsonText json = begin_answer(zone, key, text.empty() ? nullptr : &stored, now);
    if (key.empty()) {
        return send_tagged(r, json.finish(), text);
    }
    if (!policy || zone.redis == nullptr) {
        const auto counted = policy
            ? std::optional(is_counted(zone, key, *policy, peek_local(zone, key, *policy)))
            : std::nullopt;
        return OverrideAnswer::send(r, zone, key, std::move(json), text, counted);
    }
    return ask<OverrideAnswer>(r, zone, key, *policy, std::move(json), text);
}

/// Changes an override in Redis, and waits until the reply.
class OverrideQuery final : public FleetQuery<ChangeCall> {
public:
    OverrideQuery(
        ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, Change change,
        std::string text, fleet::OverrideTime time, std::string condition)
        : FleetQuery(
            r, main_conf(r).fleet->scripts().change, main_conf(r).fleet->keys(), change,
            id_of(zone, key).text(), std::move(text), time, std::move(condition)),
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
        // The node's memory does not have the change yet: requests still count as before it.
        const auto before = zone_.zone.override_of(key_);
        return send_override(
            r_, zone_, key_, stored_, stored.at, counting_policy(zone_, key_, before));
    }

    ngx_int_t show_failure(redis::Fate fate) override
    {
        if (!maybe_changed(fate)) {
            return send_failure(r_, fate);
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

/// 204, or a text if nothing was counted under the key.
ngx_int_t send_freed(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, bool counted)
{
    if (counted) {
        return send_response(r, NGX_HTTP_NO_CONTENT, {}, {});
    }
    JsonText json;
    json.begin_object().text("zone", zone.zone.name);
    write_key(json, &zone.zone, key);
    write_counted(json, zone, key, false);
    return send_response(r, NGX_HTTP_OK, json_type, json.finish());
}

/// Writes the event that a key was freed.
class FreedQuery final : public RedisQuery, private ChangeCall {
public:
    FreedQuery(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, bool counted)
        : RedisQuery(r),
          ChangeCall(
              main_conf(r).fleet->scripts().change, main_conf(r).fleet->keys(), Change::free,
              ChangeId{ ChangeId::Kind::freed_key, zone.zone.name, key }.text(),
              fleet::begin_noted(author(r))),
          zone_(zone),
          key_(key),
          counted_(counted)
    {
    }

    ngx_int_t ask()
    {
        return main_conf(r_).fleet->redis().client().send(*this) ? wait() : respond();
    }

private:
    ngx_int_t respond() override
    {
        return written_ ? send_freed(r_, zone_, key_, counted_)
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
    void ended(redis::Fate) noexcept override { answered(); }

    const ZoneConf& zone_;
    const std::string key_;
    const bool counted_;
    bool written_ = false;
};

/// One override, as Redis has it.
class OverrideLookup final : public FleetQuery<fleet::LookupCall> {
public:
    OverrideLookup(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key)
        : FleetQuery(r, main_conf(r).fleet->keys(), id_of(zone, key).text()), zone_(zone), key_(key)
    {
    }

private:
    ngx_int_t show() override
    {
        const milliseconds now = main_conf(r_).fleet->shared().redis_now();
        const auto stored = fleet::parse_stored(stored_);
        if (stored.value.has_ended(now)) {
            stored_.clear();
        }
        const auto own = stored_.empty() ? std::nullopt : std::optional(stored.value);
        return send_override(r_, zone_, key_, stored_, now, counting_policy(zone_, key_, own));
    }

    void found(std::string_view text) noexcept override
    {
        nginx::guarded(ngx_cycle->log, [&] { stored_ = text; });
        answered();
    }

    const ZoneConf& zone_;
    const std::string key_;
    std::string stored_;
};

}  // namespace

ngx_int_t show_override(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key)
{
    return ask<OverrideLookup>(r, zone, key);
}

ngx_int_t change_override(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, ChangeCall::Change which,
    std::string text, fleet::OverrideTime time)
{
    auto condition = change_condition(r);
    if (!condition) {
        return send_error(
            r, NGX_HTTP_BAD_REQUEST,
            "expected If-Match with one ETag of an override or *, or If-None-Match with *");
    }
    return ask<OverrideQuery>(r, zone, key, which, std::move(text), time, std::move(*condition));
}

ngx_int_t announce_freed(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, bool counted)
{
    log_change(r, counted ? "key freed" : "key freed, under which nothing was counted", zone, key);
    if (main_conf(r).fleet == nullptr) {
        return send_freed(r, zone, key, counted);
    }
    return ask<FreedQuery>(r, zone, key, counted);
}

}  // namespace ratelimit::http

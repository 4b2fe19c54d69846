#include "http/refusal_log.h"

#include "http/request_state.h"
#include "http/shown_key.h"
#include "nginx/text.h"

namespace ratelimit::http {

namespace {

using nginx::borrowed;
using Kind = LogRuns::Kind;

constexpr std::size_t shown_key_limit = 160;
constexpr int most_sweeps = 500;  // in one call; the next call continues

/// Logs to the cycle's log: nginx would append the current request's client to a line in the
/// connection's log, and that client was let in or has another key.
void log_end(const Zone& zone, const LogRuns::Ended& ended) noexcept
{
    char text[shown_key_limit];
    const ngx_str_t name = borrowed(zone.name);
    const ngx_str_t key = borrowed(shown_key(zone, ended.key(), text, sizeof(text)));
    ngx_log_error(
        ended.level, ngx_cycle->log, 0, "%s %ui request%s, by zone \"%V\", key \"%V\"",
        ended.kind == Kind::refused ? "limited" : "delayed", ended.count,
        ended.count == 1 ? "" : "s", &name, &key);
}

/// The remark about the limit in the first line of a run.
const char* remark_of(const RequestState& state, const AppliedLimit& limit) noexcept
{
    if (limit.shadow) {
        return ", shadow";
    }
    return state.conf.dry_run ? ", dry run" : "";
}

/// Logs the number of keys that had no line of their own; without a client, as log_end.
void log_unnamed(const Zone& zone, Kind kind, ngx_uint_t level, ngx_uint_t keys) noexcept
{
    const ngx_str_t name = borrowed(zone.name);
    if (keys > 0) {
        ngx_log_error(
            level, ngx_cycle->log, 0, "%s requests of %ui more key%s, by zone \"%V\"",
            kind == Kind::refused ? "limiting" : "delaying", keys, keys == 1 ? "" : "s", &name);
    }
}

void begin(const RequestState& state, const AppliedLimit& limit, Kind kind) noexcept
{
    const bool refused = kind == Kind::refused;
    const ngx_uint_t level = refused ? state.conf.log_level : state.conf.delay_log_level;
    ngx_log_t* log = state.request->connection->log;

    LogRuns runs = limit.zone->memory().log_runs();
    const auto to_log =
        runs.begin(limit.key, kind, level, level <= log->log_level, ngx_current_msec);
    if (to_log.forgotten) {
        log_end(*limit.zone, *to_log.forgotten);
    }
    log_unnamed(*limit.zone, kind, level, to_log.unnamed);
    if (!to_log.run) {
        return;
    }
    char text[shown_key_limit];
    const ngx_str_t name = borrowed(limit.zone->name);
    const ngx_str_t key = borrowed(shown_key(*limit.zone, limit.key, text, sizeof(text)));
    ngx_log_error(
        level, log, 0, "%s%s, by zone \"%V\", key \"%V\"",
        refused ? "limiting requests" : "delaying requests", remark_of(state, limit), &name, &key);
}

void end(const AppliedLimit& limit, Kind kind) noexcept
{
    LogRuns runs = limit.zone->memory().log_runs();
    if (const auto ended = runs.let_in(limit.key, kind, ngx_current_msec)) {
        log_end(*limit.zone, *ended);
    }
}

}  // namespace

void log_decision(const RequestState& state) noexcept
{
    const Decision& decision = state.decision;
    if (!decision.has_outcome()) {
        return;
    }
    for (const AppliedLimit& limit : decision.limits()) {
        if (!limit.decided) {
            continue;
        }
        if (!limit.state.granted) {
            begin(state, limit, Kind::refused);
            continue;
        }
        if (decision.outcome().refused || limit.cost == 0) {
            continue;  // refused by another limit, or nothing was taken
        }
        const bool has_run = limit.zone->memory().log_runs().may_have(limit.key);
        if (has_run) {
            end(limit, Kind::refused);
        }
        if (delay_of(limit).count() > 0) {
            begin(state, limit, Kind::delayed);
        } else if (has_run && traits_of(limit.policy.algorithm).delays) {
            end(limit, Kind::delayed);
        }
    }
}

void log_ended(MainConf& conf) noexcept
{
    for (const ZoneConf& zone_conf : conf.zones) {
        const Zone& zone = zone_conf.zone;
        LogRuns runs = zone.memory().log_runs();
        if (runs.empty()) {
            continue;
        }
        std::optional<LogRuns::Ended> ended;
        for (int sweeps = 0; sweeps < most_sweeps && runs.sweep(ngx_current_msec, ended);
             ++sweeps) {
            if (ended) {
                log_end(zone, *ended);
            }
        }
        for (const Kind kind : { Kind::refused, Kind::delayed }) {
            const auto more = runs.pop_unnamed(kind, ngx_current_msec);
            log_unnamed(zone, kind, more.level, more.keys);
        }
    }
}

}  // namespace ratelimit::http

#include "store/log_runs.h"

#include <utility>

namespace ratelimit {

struct LogRuns::Entry : KeyedNode {
    ngx_msec_t began;
    ngx_msec_t last;   // refused or let in
    ngx_uint_t count;  // of refusals
    u_char level;      // of the log
    bool named;        // the beginning was logged, so the end must be

    Kind kind() const noexcept { return static_cast<Kind>(tag()); }
};

namespace {

constexpr ngx_msec_int_t shortest_run_ms = 1000;
constexpr ngx_msec_int_t idle_limit_ms = 60'000;
constexpr int most_swept = 100;  // in one call, which holds the lock

ngx_msec_int_t elapsed(ngx_msec_t since, ngx_msec_t now) noexcept
{
    return static_cast<ngx_msec_int_t>(now - since);
}

}  // namespace

bool LogRuns::Lines::admit(ngx_msec_t now, ngx_uint_t most) noexcept
{
    // `since` may be a little ahead, as workers' clocks differ. Further ahead, it is not valid.
    const auto past = elapsed(since, now);
    if (past >= 1000 || past < -1000) {
        since = now;
        count = 0;
    }
    return count++ < most;
}

void LogRuns::Shared::init(std::span<KeyedTree::Root> roots) noexcept
{
    LruTable<Entry>::Shared::init(roots);
    ending.init();
    forgotten.count = 0;
    logs = {};
}

bool LogRuns::empty() const noexcept
{
    return table_.size() == 0 && shared_->forgotten.count == 0
        && log_of(Kind::refused).unnamed.keys == 0 && log_of(Kind::delayed).unnamed.keys == 0;
}

LogRuns::Entry* LogRuns::find(std::string_view key, Kind kind) const noexcept
{
    return table_.find(key, static_cast<u_char>(kind));
}

/// Removes the entry, and returns its run. Empty: its beginning was not logged.
std::optional<LogRuns::Ended> LogRuns::remove(Entry& entry) noexcept
{
    const bool named = entry.named;
    Ended ended{ {}, entry.key_length(), entry.kind(), entry.level, entry.count };
    entry.copy_key(ended.key_bytes.data());
    table_.remove(entry);
    return named ? std::optional(ended) : std::nullopt;
}

bool LogRuns::forget_oldest() noexcept
{
    Entry* oldest = nullptr;
    for (const UseQueue* queue : { &shared_->used, &shared_->ending }) {
        auto* entry = static_cast<Entry*>(queue->oldest());
        if (entry != nullptr && (oldest == nullptr || elapsed(entry->last, oldest->last) > 0)) {
            oldest = entry;
        }
    }
    if (oldest == nullptr) {
        return false;
    }
    const auto forgotten = remove(*oldest);
    if (forgotten && shared_->forgotten.count == 0) {
        shared_->forgotten = *forgotten;
    }
    return true;
}

bool LogRuns::may_log(Kind kind, ngx_msec_t now) noexcept
{
    return log_of(kind).ends.admit(now, lines_a_second);
}

std::optional<LogRuns::Ended> LogRuns::pop_forgotten(ngx_msec_t now) noexcept
{
    if (shared_->forgotten.count == 0 || !may_log(shared_->forgotten.kind, now)) {
        return std::nullopt;
    }
    const Ended forgotten = shared_->forgotten;
    shared_->forgotten.count = 0;
    return forgotten;
}

LogRuns::ToLog LogRuns::begin(
    std::string_view key, Kind kind, ngx_uint_t level, bool logs, ngx_msec_t now) noexcept
{
    const ZoneLock lock(table_.pool());

    ToLog to_log;
    Entry* entry = find(key, kind);
    const bool first = entry == nullptr;
    if (first) {
        entry = table_.insert(key, static_cast<u_char>(kind));
        to_log.forgotten = pop_forgotten(now);
        if (entry == nullptr) {
            return to_log;  // no memory: no line rather than one for each request
        }
        entry->began = now;
        entry->count = 0;
        entry->named = false;
    }
    table_.use(*entry);
    entry->last = now;
    entry->level = static_cast<u_char>(level);
    ++entry->count;
    if (logs && !entry->named) {
        Log& log = log_of(kind);
        to_log.run = entry->named = log.begins.admit(now, lines_a_second);
        if (first && !to_log.run) {
            log.unnamed = { log.unnamed.keys + 1, level };
        }
        to_log.unnamed = unnamed_of(kind, now).keys;
    }
    return to_log;
}

std::optional<LogRuns::Ended> LogRuns::let_in(
    std::string_view key, Kind kind, ngx_msec_t now) noexcept
{
    const ZoneLock lock(table_.pool());

    Entry* entry = find(key, kind);
    if (entry == nullptr) {
        return std::nullopt;
    }
    if (elapsed(entry->began, now) >= shortest_run_ms && (!entry->named || may_log(kind, now))) {
        return remove(*entry);
    }
    shared_->ending.use(*entry);
    entry->last = now;
    return std::nullopt;
}

LogRuns::Entry* LogRuns::oldest_over(ngx_msec_t now) const noexcept
{
    for (const auto& [queue, limit] : { std::pair{ &shared_->ending, shortest_run_ms },
                                        std::pair{ &shared_->used, idle_limit_ms } }) {
        auto* oldest = static_cast<Entry*>(queue->oldest());
        if (oldest != nullptr && elapsed(oldest->last, now) >= limit) {
            return oldest;
        }
    }
    return nullptr;
}

bool LogRuns::sweep(ngx_msec_t now, std::optional<Ended>& ended) noexcept
{
    const ZoneLock lock(table_.pool());

    ended = pop_forgotten(now);
    for (int i = 0; i < most_swept && !ended; ++i) {
        Entry* entry = oldest_over(now);
        if (entry == nullptr || (entry->named && !may_log(entry->kind(), now))) {
            return false;
        }
        ended = remove(*entry);
    }
    return true;
}

/// As pop_unnamed, but the caller must hold the lock.
LogRuns::Unnamed LogRuns::unnamed_of(Kind kind, ngx_msec_t now) noexcept
{
    Log& log = log_of(kind);
    if (log.unnamed.keys == 0 || !log.numbers.admit(now, 1)) {
        return {};
    }
    return std::exchange(log.unnamed, {});
}

LogRuns::Unnamed LogRuns::pop_unnamed(Kind kind, ngx_msec_t now) noexcept
{
    const ZoneLock lock(table_.pool());
    return unnamed_of(kind, now);
}

}  // namespace ratelimit

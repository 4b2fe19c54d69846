#include "fleet/apply_changes.h"

#include "fleet/fleet_keys.h"
#include "fleet/override_text.h"

#include <algorithm>

namespace ratelimit::fleet {

namespace {

static_assert(longest_key <= OverrideTable::key_limit);

/// While overrides are left out, the digests always differ: all are read again this often at most.
constexpr milliseconds between_passes{ 10'000 };

constexpr std::chrono::minutes events_kept{ 10 };  // by Redis: lua/fleet_sync.lua

constexpr std::chrono::seconds until_fewer{ 5 };
/// Between the calls of a node, also if another worker takes over.
constexpr milliseconds longest_gap{ 2500 };

/// Times in shared memory may have any value, so the difference is computed without overflow.
template <class Duration>
Duration elapsed(std::int64_t since, Duration now) noexcept
{
    const auto difference =
        static_cast<std::uint64_t>(now.count()) - static_cast<std::uint64_t>(since);
    return Duration{ static_cast<std::int64_t>(difference) };
}

/// Redis's overrides less this node's: their number modulo 2^64, their sum modulo 2^52.
OverrideDigest difference(const OverrideDigest& redis, const OverrideDigest& own) noexcept
{
    constexpr std::uint64_t modulus = OverrideDigest::modulus;
    return { redis.count - own.count, (redis.sum + modulus - own.sum) % modulus };
}

void apply_change(
    const FleetMemory& memory, const SyncReply::Change& change, ChangeListener& listener)
{
    const auto id = parse_change_id(change.id);
    if (id && id->kind == ChangeId::Kind::freed_key) {
        listener.freed(id->zone, id->key);
        return;
    }
    // A change whose id only a later version knows is kept in a zone without a name, where no
    // request finds it: so the digest agrees with Redis's, and nothing is read again.
    const std::string_view key = id ? id->key : change.id;
    if (!id && (key.empty() || key.size() > OverrideTable::key_limit)) {
        return;
    }
    const OverrideTable table = memory.table();
    const std::uint64_t zone = OverrideTable::zone_hash(id ? id->zone : std::string_view{});
    const Override value = id ? parse_stored(change.text).value : Override{};
    if (change.text.empty()) {
        table.remove(zone, key);
    } else if (!table.put(zone, key, { value, change.version })) {
        ++memory.shared().unfit;
    }
    if (id && !key.empty()) {
        listener.changed(id->zone, key);
    }
}

/// How many overrides are left out. Since the last full read, Redis and this node differ by one
/// more or less for each override that came without room, or that had none and is gone.
std::uint64_t left_out(const FleetMemory::Shared& shared, const OverrideDigest& missing) noexcept
{
    if (shared.unfit == 0) {
        return 0;
    }
    const auto since = missing.count - shared.missing.count;
    const auto all = static_cast<std::int64_t>(shared.unfit_in_read + since);
    return static_cast<std::uint64_t>(std::max<std::int64_t>(all, 0));
}

/// A Redis that has lost its data first knows only the nodes that have called it since. So a
/// smaller number counts only if all replies of the time `until_fewer` had it, no call failed, and
/// Redis had had its list of nodes for as long before. Without a report of this node, `nodes` may
/// be too small for longer.
void count_nodes(
    FleetMemory::Shared& shared, const SyncReply& reply, bool reports, microseconds now) noexcept
{
    FleetMemory::Fewer& fewer = shared.fewer;
    const std::uint32_t nodes = reply.nodes;
    if (nodes >= shared.nodes.load()) {
        shared.nodes.store(nodes);
        fewer = {};
        return;
    }
    if (!reports) {
        return;
    }
    if (reply.listed < until_fewer) {
        fewer = {};
        return;
    }
    if (fewer.since_us == 0 || elapsed(fewer.heard_us, now) > longest_gap) {
        fewer = { now.count(), now.count(), 0 };
    }
    fewer.heard_us = now.count();
    fewer.most = std::max(fewer.most, nodes);
    if (elapsed(fewer.since_us, now) >= until_fewer) {
        shared.nodes.store(fewer.most);
        fewer = {};
    }
}

/// Notices that Redis has lost its data: its list of the fleet's nodes began again.
void watch_list(FleetMemory::Shared& shared, const SyncReply& reply) noexcept
{
    const std::int64_t began =
        std::chrono::duration_cast<milliseconds>(reply.now - reply.listed).count();
    shared.list_is_new =
        shared.list_is_new || (shared.list_began_ms != 0 && began > shared.list_began_ms);
    shared.list_began_ms = began;
}

/// Ends a full read. Overrides that Redis does not have were lost, if it began again or if this
/// node has missed no event by which they were taken back.
void end_full_read(
    const FleetMemory& memory, const SyncReply& reply, milliseconds now,
    ChangeListener& listener) noexcept
{
    FleetMemory::Shared& shared = memory.shared();
    const milliseconds redis_now = std::chrono::duration_cast<milliseconds>(reply.now);
    const std::uint64_t gone = memory.table().end_full_read(redis_now);
    const bool missed_none = shared.known_ms != 0 && elapsed(shared.known_ms, now) < events_kept;
    if (gone > 0 && (shared.list_is_new || missed_none)) {
        shared.lost.store(gone);
        shared.lost_ms.store(redis_now.count());
        listener.lost(gone);
    }
    shared.list_is_new = false;
}

/// All changes are known: ends a full read, or compares with Redis.
void finish(
    const FleetMemory& memory, const SyncReply& reply, milliseconds now,
    ChangeListener& listener) noexcept
{
    FleetMemory::Shared& shared = memory.shared();
    if (shared.in_full_read) {
        end_full_read(memory, reply, now, listener);
        shared.in_full_read = false;
        shared.missing = difference(reply.digest, memory.table().digest());
        shared.unfit_in_read = shared.unfit;
        shared.left_out.store(shared.unfit);
        shared.pass_ended_ms = now.count();
    } else {
        const OverrideDigest missing = difference(reply.digest, memory.table().digest());
        shared.left_out.store(left_out(shared, missing));
        const bool lost = missing != shared.missing;  // by Redis, or by this node
        const bool fits =
            shared.left_out.load() > 0 && memory.table().has_room(OverrideTable::key_limit);
        const bool may_begin =
            shared.unfit == 0 || elapsed(shared.pass_ended_ms, now) >= between_passes;
        if ((lost || fits) && may_begin) {
            shared.cursor = 0;
        }
    }
    shared.loaded.store(true);
    if (shared.cursor != 0) {
        shared.known_ms = now.count();
    }
}

}  // namespace

std::optional<Known> known_of(const FleetMemory& memory, std::uint64_t storage) noexcept
{
    const FleetMemory::Lock lock(memory);
    const FleetMemory::Shared& shared = memory.shared();
    if (!lock || shared.storage.load() != storage) {
        return std::nullopt;
    }
    return Known{ storage, shared.cursor, shared.in_full_read };
}

Applied apply_changes(
    const FleetMemory& memory, const SyncReply& reply, const Known& sent, microseconds now,
    ChangeListener& listener)
{
    const FleetMemory::Lock lock(memory);
    FleetMemory::Shared& shared = memory.shared();
    if (!lock || shared.storage.load() != sent.storage || shared.cursor != sent.cursor) {
        return Applied::nothing;
    }
    if (reply.from == 0) {
        memory.table().begin_full_read();
        shared.in_full_read = true;
        shared.unfit = 0;
    }
    for (std::size_t i = 0; i < reply.size(); ++i) {
        if (const auto change = reply.change(i)) {
            apply_change(memory, *change, listener);
        }
    }
    shared.cursor = reply.cursor;
    count_nodes(shared, reply, sent.reports, now);
    if (sent.reports) {
        watch_list(shared, reply);
    }
    shared.offset_us.store((reply.now - now).count());
    if (!reply.more) {
        finish(memory, reply, std::chrono::duration_cast<milliseconds>(now), listener);
    }
    return reply.more || shared.cursor == 0 ? Applied::more : Applied::all;
}

}  // namespace ratelimit::fleet

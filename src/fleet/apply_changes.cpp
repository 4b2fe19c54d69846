#include "fleet/apply_changes.h"

#include "fleet/fleet_keys.h"
#include "fleet/override_text.h"

namespace ratelimit::fleet {

namespace {

static_assert(longest_key <= OverrideTable::key_limit);

/// If not all overrides fit, each new one makes a difference. Passes are at least this far apart.
constexpr milliseconds between_passes{ 10'000 };

/// What Redis has more than this node, modulo 2^64 and 2^52.
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
    // What has an id that only a later version knows is kept in a zone without a name, where no
    // request finds it: the digest counts it as Redis does, so nothing has to be read again.
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
        memory.shared().left_out.fetch_add(1);
    }
    if (id && !key.empty()) {
        listener.changed(id->zone, key);
    }
}

/// All changes are known: ends a pass, or compares with Redis.
void finish(const FleetMemory& memory, const SyncReply& reply, milliseconds now) noexcept
{
    FleetMemory::Shared& shared = memory.shared();
    if (shared.in_pass) {
        memory.table().end_pass();
        shared.in_pass = false;
        shared.missing = difference(reply.digest, memory.table().digest());
        shared.pass_ended_ms = now.count();
    } else if (
        difference(reply.digest, memory.table().digest()) != shared.missing
        && (shared.left_out.load() == 0
            || now - milliseconds{ shared.pass_ended_ms } >= between_passes)) {
        shared.cursor = 0;  // Redis lost changes that this node has, or the reverse
    }
    shared.loaded.store(true);
}

}  // namespace

bool apply_changes(
    const FleetMemory& memory, const SyncReply& reply, std::uint64_t sent, microseconds now,
    ChangeListener& listener)
{
    const FleetMemory::Lock lock(memory);
    FleetMemory::Shared& shared = memory.shared();
    if (shared.cursor != sent) {
        return false;
    }
    if (reply.from == 0) {
        memory.table().begin_pass();
        shared.in_pass = true;
        shared.left_out.store(0);
    }
    for (std::size_t i = 0; i < reply.size(); ++i) {
        if (const auto change = reply.change(i)) {
            apply_change(memory, *change, listener);
        }
    }
    shared.cursor = reply.cursor;
    shared.nodes.store(reply.nodes);
    shared.offset_us.store((reply.now - now).count());
    if (!reply.more) {
        finish(memory, reply, std::chrono::duration_cast<milliseconds>(now));
    }
    return reply.more || shared.cursor == 0;
}

}  // namespace ratelimit::fleet

#pragma once

#include "check/limit_owner.h"
#include "check/receipt.h"
#include "limit/address_form.h"
#include "limit/grammar.h"
#include "store/fleet_memory.h"
#include "store/zone_memory.h"

#include <optional>
#include <string>
#include <string_view>

namespace ratelimit {

/// One ratelimit_zone, without the nginx expressions for its key and rate.
struct Zone final : LimitOwner {
    std::string name;
    std::optional<AddressForm>
        addresses;  // its keys are addresses or networks; empty: they are not
    Policy policy;  // a quota of 0: the rate is a variable, and each request has its own
    Clock clock = Clock::redis;
    /// How many nodes share the zone, for FailMode::local. 0: as many as the fleet has.
    std::int64_t nodes = 1;
    bool cache = true;       // refusals are remembered
    std::int64_t lease = 0;  // the most requests to lease for a busy key; 0: none
    /// The most units of a key that each worker lets in before Redis has counted them; 0: none.
    std::int64_t ahead = 0;
    std::string key_start;  // the start of every Redis key: prefix, name and ":{"
    /// Identifies where in Redis the keys are. If a reload changes that, remembered refusals and
    /// leases no longer apply.
    std::uint64_t storage_id = 0;

    /// Its limits may be checked with limits on other servers. They may count a request that is
    /// refused there, until it is refunded.
    bool spans_servers = false;

    ngx_shm_zone_t* shared = nullptr;                // the zone's memory on this node
    microseconds remembered = DenialCache::longest;  // how long a refusal is, at most

    ngx_shm_zone_t* fleet = nullptr;                   // FleetMemory; null: no ratelimit_fleet
    OverrideTable::ZoneSlot* override_slot = nullptr;  // in that memory; null: no overrides

    /// Call after nginx has initialised `shared`.
    ZoneMemory memory() const noexcept { return ZoneMemory(*shared); }

    /// The override in force for this key: its own or the whole zone's. An override that does not
    /// fit the zone's algorithm is passed over.
    std::optional<Override> override_of(std::string_view key) const noexcept
    {
        // Without overrides this costs two reads.
        return override_slot == nullptr || !override_slot->any() ? std::nullopt
                                                                 : find_override(key);
    }

    /// The same of this key alone, or with an empty key of the whole zone. With an `override_slot`.
    std::optional<Override> own_override(std::string_view key) const noexcept;

    /// How long an override lasts from now on; at least a millisecond. Empty: it has no end.
    std::optional<microseconds> rest_of(const Override& override) const noexcept;

    /// How many nodes share the zone.
    std::int64_t node_count() const noexcept
    {
        if (nodes != 0) {
            return nodes;
        }
        return fleet == nullptr ? 1 : FleetMemory(*fleet).nodes();
    }

    /// A hash of all that a decision of this zone depends on, except key, cost and time.
    std::uint64_t policy_hash(const Policy& of) const noexcept;

    /// Policy::record of a policy of this zone.
    std::uint32_t record_of(const Policy& of) const noexcept
    {
        return of.record(policy.rate.quota == 0);
    }

    /// An upper bound of the length of redis_key's result for this key.
    std::size_t redis_key_length(std::string_view key) const noexcept
    {
        constexpr std::size_t end = std::char_traits<char>::length(".}:block:4294967295");
        return key_start.size() + key.size() + end;
    }

    /// Writes prefix, name, `:{key}`, and `:record` unless that is 0, to `out`, which must have
    /// room for redis_key_length. The braces put all zones with the same key in one hash slot of a
    /// cluster. `}}rest` is written as `:}}{.rest}`.
    std::string_view redis_key(
        std::string_view key, std::uint32_t record, char* out) const noexcept;

    /// The same for the block of the key, which all its records have in common: `:{key}:block`.
    /// That of an override has a record of its own, `:{key}:block:record`.
    std::string_view block_key(
        std::string_view key, std::uint32_t override_record, char* out) const noexcept;

    void block_began() const noexcept override
    {
        memory().counters().add(ZoneCounters::Units::blocked, 1);
    }
    void refunded(std::string_view key) const noexcept override
    {
        if (cache) {
            memory().denials().forget_key(key);
        }
    }

    void ahead_answered(
        const Receipt& of, const KeyAnswer& answer, std::int64_t unanswered) const noexcept override
    {
        memory().last_answers().answered(
            { of.key, of.policy_hash, 0 }, of.policy, ahead, answer, unanswered);
        if (answer.beyond > 0) {
            memory().counters().add(ZoneCounters::Units::ahead_beyond, answer.beyond);
        }
    }
    void ahead_uncertain(const Receipt& of) const noexcept override
    {
        memory().last_answers().doubt({ of.key, of.policy_hash, 0 });
    }

    void lease_renewed(
        const Receipt& of, const RunReply& answer, microseconds sent) const noexcept override
    {
        TokenLeases leases = memory().leases();
        const KeyedRequest request{ of.key, of.policy_hash, of.cost };
        if (answer.taken > 0) {
            leases.add(request, of.policy, answer, answer.taken, sent);
        } else {
            leases.end_renewal(request);
        }
    }

private:
    char* write_key(std::string_view key, char* out) const noexcept;
    std::optional<Override> find_override(std::string_view key) const noexcept;
};

}  // namespace ratelimit

#pragma once

#include "base/keyed_hash.h"
#include "nginx/ngx.h"
#include "store/override_block.h"
#include "store/zone_slots.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// The overrides of all zones that a node knows, in shared memory of fixed size. Looking one up
/// takes no lock and writes nothing. It never evicts: an override that does not fit is left out.
///
/// Layout: Shared, an array of bucket heads, and blocks of equal size. An override is a block in
/// the list of its bucket; a key longer than `first_bytes` has a second block. A link is the index
/// of a block; its high byte is a Bloom filter of the hashes from here to the list's end. So a key
/// without an override is usually found to have none by its bucket's head alone; 100 000 blocks are
/// too many for a processor's cache. Each change is published by one store of a link, so the lists
/// are consistent at every moment, also if the writer is killed; the next writer then finds the
/// blocks that belong to no list (repair).
///
/// Writers hold a lock of their owner's. A reader that meets a change looks again: a block that was
/// freed while it was read may be in another list now.
///
/// The master process trusts nothing of this memory, because workers write to it: sizes are
/// computed from that of the memory, an index beyond them means the last block, and each walk has
/// an end. So whatever the memory contains, a call reads and writes only within it, and returns.
class OverrideTable {
public:
    static constexpr std::size_t key_limit = 128;
    static constexpr std::size_t most_zones = ZoneSlots::most;

    using ZoneSlot = ZoneSlots::Slot;

    using Entry = OverrideEntry;

    using Digest = OverrideDigest;

    struct Shared;

    /// Initialises memory of `size` bytes, at least smallest_size, aligned as Shared. With `secret`
    /// no list is long, whoever chooses the keys.
    static constexpr std::size_t smallest_size = std::size_t{ 64 } * 1024;
    static void init(void* memory, std::size_t size, const HashSecret& secret) noexcept;

    /// Memory that was initialised with the same size.
    OverrideTable(void* memory, std::size_t size) noexcept;

    static std::uint64_t zone_hash(std::string_view name) noexcept;

    /// ZoneSlots::add. Call in the master process.
    ZoneSlot* slot(std::uint64_t zone) const noexcept;

    /// The override of a key; an empty key means the whole zone.
    std::optional<Entry> find(std::uint64_t zone, std::string_view key) const noexcept;

    // For writers.

    /// Sets the override of a key, and marks it as seen in this full read. False: no room for it;
    /// what was there before is removed. An entry of the present version changes nothing.
    bool put(std::uint64_t zone, std::string_view key, const Entry& entry) const noexcept;
    void remove(std::uint64_t zone, std::string_view key) const noexcept;
    /// Whether another override of a key of this length fits.
    bool has_room(std::size_t key_length) const noexcept;

    /// Puts all entries of another table. False: some have no room.
    bool copy(const OverrideTable& from) const noexcept;

    /// Begins to read all overrides of Redis. end_full_read removes those that were not put
    /// meanwhile, and returns how many of these had not ended at `now`, by Redis's clock.
    void begin_full_read() const noexcept;
    std::uint64_t end_full_read(milliseconds now = {}) const noexcept;

    Digest digest() const noexcept;

    /// Counts the overrides of zones whose slots were added since the last call.
    void count_added_zones() const noexcept;

    /// Makes free blocks and counts right again after a writer was killed.
    void repair() const noexcept;

private:
    using Block = OverrideBlock;
    using Link = std::uint32_t;

    Block& block(std::uint32_t index) const noexcept;
    std::uint32_t hash_of(std::uint64_t zone, std::string_view key) const noexcept;
    Link* heads() const noexcept;
    Link& head_of(std::uint32_t hash) const noexcept;
    bool is_key(const Block& block, std::string_view key) const noexcept;
    bool matches(const Block& block, std::uint32_t hash, std::uint64_t zone, std::string_view key)
        const noexcept;
    std::uint32_t search(
        std::uint32_t hash, std::uint64_t zone, std::string_view key) const noexcept;
    std::uint32_t take_block() const noexcept;
    void free_block(std::uint32_t index) const noexcept;
    void free_entry(std::uint32_t index) const noexcept;
    void begin_change() const noexcept;
    void count(const Block& block, bool added) const noexcept;
    template <class Visit>
    void each_entry(Visit&& visit) const noexcept;
    void count_zones() const noexcept;
    void unlink(Link* link) const noexcept;
    void remove_others(
        std::uint32_t hash, std::uint64_t zone, std::string_view key,
        std::uint32_t kept) const noexcept;

    Shared* shared_;
    std::uint32_t buckets_;  // a power of two
    std::uint32_t blocks_;
};

}  // namespace ratelimit

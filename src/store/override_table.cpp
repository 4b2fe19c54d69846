#include "store/override_table.h"

#include "base/hash.h"
#include "store/filtered_link.h"
#include "store/override_block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <span>

namespace ratelimit {

namespace {

constexpr int most_tries = 1000;
constexpr std::uint32_t longest_list = 256;  // a longer one is damaged
/// Blocks that are reserved for overrides of whole zones.
constexpr std::uint32_t kept_for_zones = 16;

}  // namespace

struct alignas(64) OverrideTable::Shared {  // so that a block is in two cache lines
    std::atomic<std::uint32_t> changes;     // how many were begun
    std::uint32_t full_read;
    std::uint32_t free;  // the first free block
    std::uint32_t free_count;
    Digest digest;
    HashSecret secret;
    ZoneSlots zones;
};

OverrideTable::OverrideTable(void* memory, std::size_t size) noexcept
    : shared_(static_cast<Shared*>(memory))
{
    const std::size_t room = size - sizeof(Shared);
    buckets_ = static_cast<std::uint32_t>(std::bit_floor(room / (sizeof(Block) + sizeof(Link))));
    blocks_ = static_cast<std::uint32_t>(
        std::min<std::size_t>((room - buckets_ * sizeof(Link)) / sizeof(Block), most_blocks));
}

/// The last block in place of one that does not exist.
OverrideTable::Block& OverrideTable::block(std::uint32_t index) const noexcept
{
    return reinterpret_cast<Block*>(heads() + buckets_)[std::min(index - 1, blocks_ - 1)];
}

/// The keys of overrides may be a client's choice: with hashes that it knows, it could fill a list.
std::uint32_t OverrideTable::hash_of(std::uint64_t zone, std::string_view key) const noexcept
{
    const std::uint64_t hash = keyed_hash(shared_->secret, key) ^ zone;
    return static_cast<std::uint32_t>(hash ^ hash >> 32U);
}

OverrideTable::Link* OverrideTable::heads() const noexcept
{
    return reinterpret_cast<Link*>(shared_ + 1);
}

OverrideTable::Link& OverrideTable::head_of(std::uint32_t hash) const noexcept
{
    return heads()[hash & (buckets_ - 1)];
}

void OverrideTable::init(void* memory, std::size_t size, const HashSecret& secret) noexcept
{
    static_assert(sizeof(Block) == 128, "two cache lines");
    static_assert(sizeof(Shared) < smallest_size / 2, "blocks have room");
    std::memset(memory, 0, size);
    (new (memory) Shared{})->secret = secret;
    OverrideTable(memory, size).repair();
}

std::uint64_t OverrideTable::zone_hash(std::string_view name) noexcept
{
    const std::uint64_t hash = fnv1a(name);
    return hash == 0 ? 1 : hash;
}

OverrideTable::ZoneSlot* OverrideTable::slot(std::uint64_t zone) const noexcept
{
    return shared_->zones.add(zone);
}

bool OverrideTable::is_key(const Block& entry, std::string_view key) const noexcept
{
    if (relaxed(entry.key_length) != key.size() || key.size() > key_limit) {
        return false;
    }
    const auto begins = [](const Block& with, std::string_view part) {
        const auto bytes = with.bytes();
        return part == std::string_view(bytes.data(), part.size());
    };
    const auto first = key.substr(0, Block::first_bytes);
    return begins(entry, first)
        && (first.size() == key.size()
            || begins(block(load(entry.rest)), key.substr(first.size())));
}

bool OverrideTable::matches(
    const Block& entry, std::uint32_t hash, std::uint64_t zone, std::string_view key) const noexcept
{
    return relaxed(entry.hash) == hash && relaxed(entry.zone) == zone && is_key(entry, key);
}

/// The first block of the entry; 0: there is none.
std::uint32_t OverrideTable::search(
    std::uint32_t hash, std::uint64_t zone, std::string_view key) const noexcept
{
    Link link = load(head_of(hash));
    // A reader that meets changes could follow links without an end.
    for (std::uint32_t steps = 0; (link & filter_bit(hash)) != 0 && steps < longest_list; ++steps) {
        const Block& entry = block(index_of(link));
        if (matches(entry, hash, zone, key)) {
            return index_of(link);
        }
        link = load(entry.next);
    }
    return 0;
}

std::optional<OverrideTable::Entry> OverrideTable::find(
    std::uint64_t zone, std::string_view key) const noexcept
{
    const std::uint32_t hash = hash_of(zone, key);
    std::optional<Entry> found;
    for (int tries = 0; tries < most_tries; ++tries) {
        const auto before = shared_->changes.load(std::memory_order_acquire);
        const std::uint32_t index = search(hash, zone, key);
        found = index == 0 ? std::nullopt : std::optional(block(index).entry());
        std::atomic_thread_fence(std::memory_order_acquire);
        if (shared_->changes.load(std::memory_order_relaxed) == before) {
            break;
        }
    }
    return found;
}

/// Must precede every reuse of a block.
void OverrideTable::begin_change() const noexcept
{
    shared_->changes.fetch_add(1, std::memory_order_acq_rel);
    std::atomic_thread_fence(std::memory_order_release);
}

std::uint32_t OverrideTable::take_block() const noexcept
{
    const std::uint32_t index = load(shared_->free);
    shared_->free = block(index).rest;
    --shared_->free_count;
    return index;
}

/// Keeps `next`, which a reader may be following.
void OverrideTable::free_block(std::uint32_t index) const noexcept
{
    set_relaxed(block(index).rest, shared_->free);
    shared_->free = index;
    ++shared_->free_count;
}

void OverrideTable::free_entry(std::uint32_t index) const noexcept
{
    const Block& entry = block(index);
    if (entry.key_length > Block::first_bytes) {
        free_block(load(entry.rest));
    }
    free_block(index);
}

bool OverrideTable::has_room(std::size_t key_length) const noexcept
{
    const std::uint32_t needed = key_length > Block::first_bytes ? 2 : 1;
    return shared_->free_count >= needed + (key_length == 0 ? 0 : kept_for_zones);
}

void OverrideTable::count(const Block& entry, bool added) const noexcept
{
    shared_->zones.count(entry.zone, entry.key_length == 0, added);
    Digest& digest = shared_->digest;
    digest.count += added ? 1 : UINT64_MAX;
    const std::uint64_t version = entry.version % Digest::modulus;
    digest.sum = (digest.sum + (added ? version : Digest::modulus - version)) % Digest::modulus;
}

/// Removes the entry that `link` leads to. Its bit may stay in the filters of links before this
/// one: a look-up then reads a block for nothing.
void OverrideTable::unlink(Link* link) const noexcept
{
    const std::uint32_t index = index_of(load(*link));
    count(block(index), false);
    publish(*link, block(index).next);
    free_entry(index);
}

/// Removes the key's entries except `kept`.
void OverrideTable::remove_others(
    std::uint32_t hash, std::uint64_t zone, std::string_view key, std::uint32_t kept) const noexcept
{
    Link* link = &head_of(hash);
    std::uint32_t index = 0;
    for (auto room = longest_list; room > 0 && (index = index_of(load(*link))) != 0; --room) {
        if (index != kept && matches(block(index), hash, zone, key)) {
            unlink(link);
        } else {
            link = &block(index).next;
        }
    }
}

bool OverrideTable::put(std::uint64_t zone, std::string_view key, const Entry& entry) const noexcept
{
    const std::uint32_t hash = hash_of(zone, key);
    const std::uint32_t present = search(hash, zone, key);
    if (present != 0) {
        Block& known = block(present);
        if (known.version == entry.version) {
            known.full_read = shared_->full_read;
            return true;
        }
    }
    begin_change();
    if (present != 0 && !has_room(key.size())) {
        remove_others(hash, zone, key, 0);
        begin_change();  // its blocks are used again
    }
    if (key.size() > key_limit || !has_room(key.size())) {
        remove_others(hash, zone, key, 0);
        return false;
    }
    const std::uint32_t index = take_block();
    Block& added = block(index);
    const auto first = key.substr(0, Block::first_bytes);
    added.set_bytes(first);
    const std::uint32_t rest = first.size() < key.size() ? take_block() : 0;
    set_relaxed(added.rest, rest);
    if (rest != 0) {
        block(rest).set_bytes(key.substr(first.size()));
    }
    set_relaxed(added.hash, hash);
    added.full_read = shared_->full_read;
    set_relaxed(added.zone, zone);
    set_relaxed(added.key_length, static_cast<std::uint8_t>(key.size()));
    added.set(entry);
    Link& head = head_of(hash);
    set_relaxed(added.next, head);
    publish(head, (head & ~most_blocks) | filter_bit(hash) | index_of(index));
    count(added, true);
    begin_change();  // a reader that began before this one could miss both
    remove_others(hash, zone, key, index);
    return true;
}

void OverrideTable::remove(std::uint64_t zone, std::string_view key) const noexcept
{
    begin_change();
    remove_others(hash_of(zone, key), zone, key, 0);
}

void OverrideTable::begin_full_read() const noexcept
{
    ++shared_->full_read;
}

std::uint64_t OverrideTable::end_full_read(milliseconds now) const noexcept
{
    begin_change();
    std::uint64_t gone = 0;
    std::uint32_t room = blocks_;
    for (Link& head : std::span(heads(), buckets_)) {
        Link* link = &head;
        std::uint32_t index = 0;
        for (; room > 0 && (index = index_of(load(*link))) != 0; --room) {
            if (block(index).full_read != shared_->full_read) {
                gone += block(index).entry().value.has_ended(now) ? 0 : 1;
                unlink(link);
            } else {
                link = &block(index).next;
            }
        }
    }
    return gone;
}

OverrideTable::Digest OverrideTable::digest() const noexcept
{
    return shared_->digest;
}

template <class Visit>
void OverrideTable::each_entry(Visit&& visit) const noexcept
{
    std::uint32_t room = blocks_;
    for (const Link& head : std::span(heads(), buckets_)) {
        for (Link link = load(head); index_of(link) != 0 && room > 0; --room) {
            Block& entry = block(index_of(link));
            link = load(entry.next);
            visit(entry);
        }
    }
}

bool OverrideTable::copy(const OverrideTable& from) const noexcept
{
    bool fits = true;
    from.each_entry([&](const Block& entry) {
        std::array<char, 2 * Block::first_bytes> key;
        const std::size_t length = std::min<std::size_t>(entry.key_length, key_limit);
        const auto first = entry.bytes();
        std::copy(first.begin(), first.end(), key.begin());
        if (length > Block::first_bytes) {
            const auto rest = from.block(load(entry.rest)).bytes();
            std::copy(rest.begin(), rest.end(), key.begin() + Block::first_bytes);
        }
        fits = put(entry.zone, { key.data(), length }, entry.entry()) && fits;
    });
    return fits;
}

void OverrideTable::count_zones() const noexcept
{
    shared_->zones.count_all([this](auto&& add) {
        each_entry([&](const Block& entry) { add(entry.zone, entry.key_length == 0); });
    });
}

void OverrideTable::count_added_zones() const noexcept
{
    if (shared_->zones.any_uncounted()) {
        count_zones();
    }
}

void OverrideTable::repair() const noexcept
{
    begin_change();
    shared_->digest = {};
    for (std::uint32_t index = 1; index <= blocks_; ++index) {
        block(index).used = 0;
    }
    each_entry([this](Block& entry) {
        entry.used = 1;
        if (entry.key_length > Block::first_bytes) {
            block(load(entry.rest)).used = 1;
        }
        count(entry, true);
    });
    count_zones();
    shared_->free = 0;
    shared_->free_count = 0;
    for (std::uint32_t index = blocks_; index > 0; --index) {
        if (block(index).used == 0) {
            free_block(index);
        }
    }
}

}  // namespace ratelimit

#pragma once

#include "base/free_list.h"
#include "base/keyed_hash.h"

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace ratelimit {

/// A hash table of entries that are reused with their memory. An Entry has the members `Entry*
/// next` and `std::size_t hash`, which are the table's, and stays where it is.
template <class Entry>
class EntryTable {
public:
    EntryTable() : buckets_(first_buckets) {}

    std::size_t size() const noexcept { return used_; }

    /// For the hash of an entry's keys. Clients choose keys, but they cannot choose many with one
    /// hash.
    KeyedHash begin_hash() const noexcept { return KeyedHash(secret_); }
    std::size_t hash_of(std::string_view key) const noexcept { return keyed_hash(secret_, key); }

    /// The entry with this hash for which `matches` holds. Null: there is none.
    template <class Matches>
    Entry* find(std::size_t hash, Matches&& matches) noexcept
    {
        Entry* entry = bucket_of(hash);
        while (entry != nullptr && !(entry->hash == hash && matches(*entry))) {
            entry = entry->next;
        }
        return entry;
    }

    /// Adds an entry: a removed one, or one that is made of `parts`.
    template <class... Parts>
    Entry& add(std::size_t hash, Parts&... parts)
    {
        if (used_ == buckets_.size()) {
            grow();
        }
        Entry& entry = entries_.take(parts...);
        entry.hash = hash;
        entry.next = std::exchange(bucket_of(hash), &entry);
        ++used_;
        return entry;
    }

    void remove(Entry& entry) noexcept
    {
        Entry** link = &bucket_of(entry.hash);
        while (*link != &entry) {
            link = &(*link)->next;
        }
        *link = entry.next;
        entries_.give_back(entry);
        --used_;
    }

    /// `visit` must not add or remove entries.
    template <class Visit>
    void each(Visit&& visit)
    {
        for (Entry* entry : buckets_) {
            for (; entry != nullptr; entry = entry->next) {
                visit(*entry);
            }
        }
    }

private:
    static constexpr std::size_t first_buckets = 64;

    Entry*& bucket_of(std::size_t hash) noexcept { return buckets_[hash & (buckets_.size() - 1)]; }

    void grow()
    {
        std::vector<Entry*> old(2 * buckets_.size());
        std::swap(old, buckets_);
        for (Entry* first : old) {
            while (first != nullptr) {
                Entry*& bucket = bucket_of(first->hash);
                Entry* next = std::exchange(first->next, bucket);
                bucket = std::exchange(first, next);
            }
        }
    }

    const HashSecret secret_ = random_secret();
    std::vector<Entry*> buckets_;  // by hash; their number is a power of two
    std::size_t used_ = 0;
    ReusePool<Entry> entries_;
};

}  // namespace ratelimit

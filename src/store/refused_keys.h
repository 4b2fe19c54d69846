#pragma once

#include "nginx/ngx.h"

#include <array>
#include <optional>
#include <string_view>

namespace ratelimit {

/// The keys of one zone that are being refused or delayed, in the zone's shared memory, so that a
/// flood is two lines of the log whatever worker meets it: one when it starts, one when it ends.
/// Full memory forgets the keys that were refused longest ago.
///
/// Layout: the slab pool's data is one Shared (in the .cpp): a red-black tree of all Entries, by
/// the key's CRC32, kind and text, and two queues with each entry in one of them; all under the
/// pool's mutex.
class RefusedKeys {
public:
    enum class Kind : std::uint8_t { refused, delayed };

    /// A key whose refusals ended: how many they were.
    struct Ended {
        static constexpr std::size_t key_limit = 128;
        std::array<char, key_limit> key_bytes;
        std::size_t key_length;
        Kind kind;
        u_char level;  // of the log, as `begin` was told
        ngx_uint_t count;
        std::string_view key() const noexcept { return { key_bytes.data(), key_length }; }
    };

    /// Makes nginx set the zone's memory up. Its `data` is then ours.
    static void prepare(ngx_shm_zone_t& zone) noexcept;

    /// In a worker, after nginx has set the zone up.
    explicit RefusedKeys(ngx_shm_zone_t& zone) noexcept;

    /// Counts one refusal (or delay). True: it is the first of a run, the line to log.
    /// `level` is kept for the line that ends the run. `forgotten` receives the key that had to
    /// make room, if any did.
    bool begin(
        std::string_view key, Kind kind, ngx_uint_t level, ngx_msec_t now,
        std::optional<Ended>& forgotten) noexcept;

    /// The key was let in: its run ends, or, when it began less than a second ago, ends in `sweep`
    /// unless it goes on: a key that is let in and refused by turns is one run, not one a request.
    std::optional<Ended> let_in(std::string_view key, Kind kind, ngx_msec_t now) noexcept;

    /// One run that is over or was forgotten: let in a second ago, or nothing for a minute.
    std::optional<Ended> sweep(ngx_msec_t now) noexcept;

    /// Without the lock: whether there is anything to look for.
    bool empty() const noexcept;

private:
    struct Entry;
    struct Shared;

    static ngx_int_t set_up(ngx_shm_zone_t* zone, void* old_data) noexcept;
    static void place(
        ngx_rbtree_node_t* parent, ngx_rbtree_node_t* node, ngx_rbtree_node_t* sentinel) noexcept;
    Entry* find(std::string_view key, Kind kind, uint32_t hash) const noexcept;
    Entry* insert(std::string_view key, Kind kind, uint32_t hash) noexcept;
    Ended remove(Entry& entry) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
};

}  // namespace ratelimit

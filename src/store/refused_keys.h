#pragma once

#include "nginx/ngx.h"
#include "store/keyed_tree.h"

#include <array>
#include <optional>
#include <string_view>

namespace ratelimit {

/// The keys of one zone that are being refused or delayed, in the zone's shared memory, so that a
/// flood is two lines of the log whatever worker meets it: one when it starts, one when it ends.
/// Of many keys at once, `lines_a_second` are named, and the others a number, so that a client that
/// invents keys does not fill the log. Full memory forgets the keys that were refused longest ago.
///
/// Layout: one Shared: a tree of all Entries, with the Kind as their tag, and two queues with each
/// entry in one of them; all under the pool's mutex.
class RefusedKeys {
public:
    enum class Kind : std::uint8_t { refused, delayed };
    static constexpr std::size_t kinds = 2;
    static constexpr ngx_uint_t lines_a_second = 100;  // of each kind, for beginnings and for ends

    /// A key that was named whose refusals ended: how many they were.
    struct Ended {
        static constexpr std::size_t key_limit = KeyedNode::key_limit;
        std::array<char, key_limit> key_bytes;
        std::size_t key_length;
        Kind kind;
        u_char level;  // of the log, as `begin` was told
        ngx_uint_t count;
        std::string_view key() const noexcept { return { key_bytes.data(), key_length }; }
    };

    /// Keys whose runs began without a line.
    struct Unnamed {
        ngx_uint_t keys;
        ngx_uint_t level;  // of the log, as the last was told
    };

    /// The lines of one second.
    struct Lines {
        ngx_msec_t since;
        ngx_uint_t count;
        bool take(ngx_msec_t now, ngx_uint_t most) noexcept;
    };

    /// What the log gets of one Kind.
    struct Log {
        Lines begins;
        Lines ends;
        Lines numbers;
        Unnamed unnamed;  // not told yet
    };

    struct Shared {
        KeyedTree tree;
        ngx_queue_t refused;  // newest refusal first
        ngx_queue_t ending;   // newest first
        ngx_uint_t blocks;    // that all entries have
        Ended forgotten;      // one that made room, and is yet to be told; a count of 0: none
        std::array<Log, kinds> logs;
        void init() noexcept;
    };

    RefusedKeys(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : pool_(pool),
          shared_(&shared),
          blocks_(pool, SharedBlocks::Owner::refused_keys, shared.blocks)
    {
    }

    /// What a refusal makes a line of.
    struct ToLog {
        bool run = false;  // the key's run, which began now or could not be named before
        std::optional<Ended> forgotten;  // a named key that had to make room; of several, one
        ngx_uint_t unnamed = 0;          // so many keys that had no line of their own
    };

    /// Counts one refusal (or delay). `level` is kept for the line that ends the run; `logs`: the
    /// log has such lines.
    ToLog begin(
        std::string_view key, Kind kind, ngx_uint_t level, bool logs, ngx_msec_t now) noexcept;

    /// The key was let in: its run ends, or, when it began less than a second ago or the log has
    /// enough lines, ends in `sweep` unless it goes on: a key that is let in and refused by turns
    /// is one run, not one a request. Empty: it goes on, or was not named.
    std::optional<Ended> let_in(std::string_view key, Kind kind, ngx_msec_t now) noexcept;

    /// Ends some runs that are over (let in a second ago, or nothing for a minute): up to the first
    /// that was named, which `ended` receives. False: there is no more to do now.
    bool sweep(ngx_msec_t now, std::optional<Ended>& ended) noexcept;

    /// How many runs began without a line and were not told of; once a second.
    Unnamed take_unnamed(Kind kind, ngx_msec_t now) noexcept;

    /// Forgets the key that was refused or let in longest ago; unless others were before it, begin
    /// or sweep tells of it. False: there is none. The caller has the zone's lock.
    bool forget_oldest() noexcept;

    /// Without the lock: whether there is anything to look for.
    bool empty() const noexcept;

private:
    struct Entry;

    Log& log_of(Kind kind) const noexcept { return shared_->logs[static_cast<std::size_t>(kind)]; }
    Entry* find(std::string_view key, Kind kind) const noexcept;
    Entry* oldest_over(ngx_msec_t now) const noexcept;
    bool may_tell(Kind kind, ngx_msec_t now) noexcept;
    Unnamed unnamed_until(Kind kind, ngx_msec_t now) noexcept;
    std::optional<Ended> remove(Entry& entry) noexcept;
    std::optional<Ended> take_forgotten(ngx_msec_t now) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
    SharedBlocks blocks_;
};

}  // namespace ratelimit

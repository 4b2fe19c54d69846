#pragma once

#include "nginx/ngx.h"
#include "store/lru_table.h"

#include <array>
#include <optional>
#include <string_view>

namespace ratelimit {

/// Runs of refusals (or delays) of one key, in the zone's shared memory, so that a flood makes two
/// lines in the log, whichever workers refuse it: one when the run begins, one when it ends. If
/// many runs begin at once, `lines_a_second` of them are logged by key and the rest as a number, so
/// that a client that invents keys does not fill the log. If memory is full, the keys with the
/// oldest refusals are evicted.
///
/// Layout: one Shared, a table of Entries by key and Kind. An entry is in the table's queue, or in
/// `ending`. Public functions take the zone's lock unless stated otherwise.
class LogRuns {
    struct Entry;

public:
    enum class Kind : std::uint8_t { refused, delayed };
    static constexpr std::size_t kinds = 2;
    static constexpr ngx_uint_t lines_a_second = 100;  // of each kind, for beginnings and for ends

    /// A run that has ended and whose beginning was logged.
    struct Ended {
        std::array<char, KeyedNode::key_limit> key_bytes;
        std::size_t key_length;
        Kind kind;
        u_char level;      // of the log, as given to `begin`
        ngx_uint_t count;  // of refusals
        std::string_view key() const noexcept { return { key_bytes.data(), key_length }; }
    };

    /// Runs whose beginnings were not logged.
    struct Unnamed {
        ngx_uint_t keys;
        ngx_uint_t level;  // of the log, as given for the last of them
    };

    /// Counts the lines of one second.
    struct Lines {
        ngx_msec_t since;
        ngx_uint_t count;
        /// Counts a line if there were fewer than `most`.
        bool admit(ngx_msec_t now, ngx_uint_t most) noexcept;
    };

    /// The lines of one Kind.
    struct Log {
        Lines begins;
        Lines ends;
        Lines numbers;
        Unnamed unnamed;  // whose number is not logged yet
    };

    struct Shared : LruTable<Entry>::Shared {
        UseQueue ending;  // runs of keys that were let in
        Ended forgotten;  // an evicted run whose end is not logged yet; a count of 0: none
        std::array<Log, kinds> logs;
        void init(std::span<KeyedTree::Root> roots) noexcept;
    };

    LogRuns(ngx_slab_pool_t* pool, Shared& shared) noexcept : shared_(&shared), table_(pool, shared)
    {
    }

    /// The lines that a refusal causes.
    struct ToLog {
        bool run = false;  // the beginning of the run: it begins now, or had no line before
        std::optional<Ended> forgotten;  // the end of a run that was evicted
        ngx_uint_t unnamed = 0;          // the number of runs that had no line of their own
    };

    /// Counts one refusal (or delay). `level` is kept for the line that ends the run. `logs`:
    /// whether lines of that level are logged.
    ToLog begin(
        std::string_view key, Kind kind, ngx_uint_t level, bool logs, ngx_msec_t now) noexcept;

    /// Call when the key was let in, which ends its run. If the run began less than a second ago,
    /// or this second has no more lines, `sweep` ends it later, unless the key is refused before
    /// that: a key that is alternately let in and refused has one run, not one for each request.
    /// Empty: the run is not ended yet, or its beginning was not logged.
    std::optional<Ended> let_in(std::string_view key, Kind kind, ngx_msec_t now) noexcept;

    /// Ends some runs that are over (let in a second ago, or without a request for a minute), up to
    /// the first whose beginning was logged, which `ended` receives. False: nothing is left to do.
    bool sweep(ngx_msec_t now, std::optional<Ended>& ended) noexcept;

    /// The runs whose beginnings were not logged, since they were last returned. None if that was
    /// less than a second ago.
    Unnamed pop_unnamed(Kind kind, ngx_msec_t now) noexcept;

    /// Evicts the key that was refused or let in the longest time ago. Its run is returned by begin
    /// or sweep, unless another evicted run is waiting for that. False: there is no key. The caller
    /// must hold the zone's lock.
    bool forget_oldest() noexcept;

    /// False: the key has no run. Does not take the lock.
    bool may_have(std::string_view key) const noexcept { return table_.may_have(key); }

    /// Whether there is no run, and no number of runs to log. Does not take the lock.
    bool empty() const noexcept;

private:
    Log& log_of(Kind kind) const noexcept { return shared_->logs[static_cast<std::size_t>(kind)]; }
    Entry* find(std::string_view key, Kind kind) const noexcept;
    Entry* oldest_over(ngx_msec_t now) const noexcept;
    bool may_log(Kind kind, ngx_msec_t now) noexcept;
    Unnamed unnamed_of(Kind kind, ngx_msec_t now) noexcept;
    std::optional<Ended> remove(Entry& entry) noexcept;
    std::optional<Ended> pop_forgotten(ngx_msec_t now) noexcept;

    Shared* shared_;
    LruTable<Entry> table_;
};

}  // namespace ratelimit

#pragma once

#include "limit/key_answer.h"
#include "limit/policy.h"
#include "limit/verdict.h"
#include "nginx/ngx.h"
#include "store/keyed_request.h"
#include "store/lru_table.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// Redis's last answers about the keys of a zone with ahead=n, and the units that this node let in
/// since, in the zone's shared memory. By them a request may pass before Redis has counted it: only
/// while the last answer left at least n. Only an answer raises the rest, never the passing of
/// time.
///
/// Of a key without an entry, all of its limit is assumed to be left. So the entry of a key with
/// less than n left, a scarce key, does not expire, and is evicted last. If one was evicted, keys
/// without an entry are scarce until its whole limit should be available again. (Each worker keeps
/// the units that have no answer yet: AheadUnits.)
///
/// A key has an entry for each of its policies, which count the same requests. "Nothing left" under
/// one policy holds for all of them: else each would let in n more. At most 256 policies of a key
/// have an entry; under any other, Redis decides.
///
/// Layout: one Shared, a table of Entries by key and KeyedRequest::tag, in one of two queues of
/// their use. Public functions take the zone's lock unless stated otherwise. `ahead`: n. All times
/// but those of Redis must be of one clock.
class LastAnswers {
    struct Entry;

public:
    struct Shared : LruTable<Entry>::Shared {
        UseQueue scarce;            // entries with less than n left; the others are in `used`
        microseconds now;           // of the latest call
        microseconds scarce_until;  // keys without an entry: one that was evicted may be such a key
        void init(std::span<KeyedTree::Root> roots) noexcept
        {
            LruTable<Entry>::Shared::init(roots);
            scarce.init();
            now = scarce_until = microseconds{ 0 };
        }
    };

    LastAnswers(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : shared_(&shared), table_(pool, shared)
    {
    }

    /// Lets the request in if the last answer leaves room for it. Returns the granted state after
    /// that, as far as this node knows it. Empty: Redis must decide.
    std::optional<Verdict> let_in(
        const KeyedRequest& request, const Policy& policy, std::int64_t ahead,
        microseconds now) noexcept;

    /// The request does not pass, although it was let in.
    void take_back(const KeyedRequest& request) noexcept;

    /// Redis has answered. `unanswered`: units of the key that this worker let in, and that this
    /// answer does not include. An answer that Redis made before the one that is known raises
    /// nothing.
    void answered(
        const KeyedRequest& request, const Policy& policy, std::int64_t ahead,
        const KeyAnswer& answer, std::int64_t unanswered) noexcept;

    /// The key's count in Redis is uncertain: Redis must decide the next request.
    void doubt(const KeyedRequest& request) noexcept;

    void forget_key(std::string_view key) noexcept;

    /// Evicts the least recently used key: one that is not scarce or, if there is none, one whose
    /// whole limit should be available again. False: there is none. The caller must hold the lock.
    bool forget_oldest() noexcept;
    /// Evicts the scarce key that was used least recently.
    bool forget_oldest_scarce() noexcept;

private:
    Entry* find(const KeyedRequest& request) const noexcept;
    Entry* find_or_add(
        const KeyedRequest& request, const Policy& policy, microseconds now) noexcept;
    Entry* add_beside_others(const KeyedRequest& request, const Policy& policy) noexcept;
    Entry* add(const KeyedRequest& request, const Policy& policy) noexcept;
    void forget_over(std::string_view key) noexcept;
    void exhaust_others(const KeyedRequest& request, const KeyAnswer& answer) noexcept;
    void put_in_queue(Entry& entry, bool scarce) noexcept;

    Shared* shared_;
    LruTable<Entry> table_;
};

}  // namespace ratelimit

#pragma once

#include "rehearse/count/key_table.h"
#include "rehearse/count/plan.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

namespace ratelimit::rehearse {

/// Values of a limit that are the same for most requests.
struct AskedTerms {
    Rate rate;  // of a zone whose rate is a variable; a quota of 0: malformed
    std::uint8_t start_day = 1;
    Reserve reserve;

    auto all() const noexcept
    {
        return std::tuple(
            rate.quota, rate.window, rate.period, start_day, reserve.number, reserve.share);
    }
    friend bool operator<(const AskedTerms& left, const AskedTerms& right) noexcept
    {
        return left.all() < right.all();
    }
};

/// A limit that applies to a request, evaluated.
struct AskedLimit {
    std::size_t number = 0;    // LimitConf::number
    std::string_view key;      // as it is counted
    std::uint64_t key_id = 0;  // its hash
    std::int64_t cost = 1;
    std::int64_t charge = -1;  // of charge=: the cost in the end; -1: `cost`
    AskedTerms terms;

    /// Keys are compared by their hashes.
    friend bool operator==(const AskedLimit& left, const AskedLimit& right) noexcept
    {
        return std::tie(left.number, left.key_id, left.cost, left.charge)
            == std::tie(right.number, right.key_id, right.cost, right.charge)
            && left.terms.all() == right.terms.all();
    }
};

/// Decides requests as the module does without Redis: by the checks of src/limit, and with
/// concurrency= by what the requests hold that have not ended. All limits of a request are one
/// decision.
class Decider {
public:
    Decider(
        const std::vector<ZoneConf>& zones, const std::vector<LimitConf>& limits,
        std::size_t busiest);

    /// Gives a zone another rate, at all its limits. Call before the first request.
    void set_rate(std::size_t zone, const Rate& rate);

    /// What a limit has decided.
    struct Decided {
        KeyTable::Key* key;
        KeyTable::KeyRecord* record;
        Policy policy;
        std::int64_t cost;
        std::optional<KeyCheck> check;  // empty: the rate is malformed
        microseconds blocked;           // what is left of the key's block
        Verdict verdict;
        bool refused;
        KeyCount* count;  // of the key by this limit; null: the rate is malformed

        /// Whether the limit grants the request.
        bool grants() const noexcept
        {
            return check->granted() && (cost == 0 || blocked.count() == 0);
        }
    };

    /// Returns whether the request passes. `now` and `end` of the request: microseconds since the
    /// epoch, `now` not before that of the last call. `fails_closed`: a malformed rate refuses.
    bool decide(
        std::span<const AskedLimit> asked, std::int64_t now, std::int64_t end, bool fails_closed);

    /// The decisions of the last request, by the index of `asked`. Valid until the next call.
    std::span<const Decided> decided() const noexcept { return decided_; }

    /// By LimitConf::number.
    KeyTally::Numbers numbers(std::size_t number) const
    {
        return table_of(number).numbers(limits_[number].number_in_zone);
    }
    std::vector<BusyKey> busiest(std::size_t number) const
    {
        return table_of(number).busiest(limits_[number].number_in_zone);
    }
    /// Whether the numbers of keys are exact, not estimates.
    bool exact(std::size_t number) const noexcept { return table_of(number).exact(); }

private:
    const KeyTable& table_of(std::size_t number) const { return zones_[limits_[number].zone]; }
    bool is_shadow(const AskedLimit& asked) const { return limits_[asked.number].shadow; }
    void prepare(const AskedLimit& asked, std::int64_t now, std::int64_t end, Decided& out);
    bool check(
        std::span<const AskedLimit> asked, std::int64_t now, std::int64_t end, bool fails_closed);
    static void commit(const AskedLimit& asked, Decided& limit, std::int64_t now, bool take);
    bool begins_block(const AskedLimit& asked, const Decided& limit, bool take) const;
    static void begin_block(Decided& limit, std::int64_t now);
    static void settle(const AskedLimit& asked, Decided& limit, std::int64_t now);
    friend class Bounds;  // decides by two of them

    std::vector<LimitConf> limits_;  // by LimitConf::number
    std::vector<KeyTable> zones_;    // by the zone's index
    std::vector<Decided> decided_;
    bool failed_ = false;  // a malformed rate refuses the request
};

}  // namespace ratelimit::rehearse

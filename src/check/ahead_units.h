#pragma once

#include "base/entry_table.h"
#include "base/list.h"
#include "check/receipt.h"
#include "redis/call_queue.h"
#include "redis/client.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit {

class AheadUnits;
class AheadReport;

/// The units of one key that this worker has let in and that have no answer. In an EntryTable.
struct UnansweredKey {
    std::string redis_key;
    std::int64_t units = 0;
    unsigned under_way = 0;          // reports that were sent, or are to be sent again
    AheadReport* waiting = nullptr;  // takes units, and was not sent yet; null: none
    milliseconds sent{ 0 };          // when the latest report was; of the event loop
    UnansweredKey* next = nullptr;
    std::size_t hash = 0;
};

/// Units of one key and policy that this worker has let in, on their way to Redis, which counts
/// them also beyond the limit. A report is repeated until Redis has answered; each lost reply
/// counts its units once more. It lives until then, and as long as requests whose cost may change
/// refer to it.
class AheadReport final : private redis::Owed, public Link<AheadReport> {
public:
    explicit AheadReport(AheadUnits& all) noexcept : all_(all) {}

    AheadReport* next = nullptr;  // of the ReusePool

private:
    friend class AheadUnits;

    std::string_view routing_key() const noexcept override { return redis_key_; }
    redis::ScriptId script() const noexcept override { return receipt_.scripts.charge; }
    const redis::BatchFormat& format() const noexcept override { return charge_format; }
    void write_numbers(redis::ScriptArguments& arguments) const override;
    Terms terms() const noexcept override;
    milliseconds lapses() const noexcept override { return began_ + urgent_after; }
    void begin_sending() noexcept override;
    bool on_answer(redis::ReplyPart part) noexcept override;
    void on_failure(redis::Fate fate) noexcept override;
    /// No caller waits for the reply, so a late one is as good.
    void on_timeout(redis::PendingCall& reply) noexcept override { reply.goes_to(*this); }
    /// No request waits for it.
    unsigned request_count() const noexcept override { return 0; }

    static constexpr milliseconds urgent_after{ 10'000 };  // it never lapses

    AheadUnits& all_;
    UnansweredKey* of_ = nullptr;  // null: it is answered, or given up
    std::int64_t units_ = 0;
    std::int64_t enough_ = 0;        // units that are sent at once
    unsigned users_ = 0;             // requests that refer to it
    std::int64_t returned_ = 0;      // units to be refunded when they are counted
    std::optional<Refund> counted_;  // when, and the reset then
    Receipt receipt_;                // of the texts that follow
    std::string redis_key_;
    std::string key_;
    microseconds sent_{ 0 };
    milliseconds began_{ 0 };  // of the event loop
};

/// The units that this worker has let in ahead of Redis and that Redis has not answered yet, by
/// key, for the keys of one client. A timeout, an error or a lost connection frees none.
///
/// Units are reported at once if no report of the key is under way. Otherwise they wait for its
/// answer, and then for up to 10 ms unless they are half of n: so a key that is never without
/// requests has one call in flight, and a hundred in a second if Redis is near.
class AheadUnits {
public:
    /// `clock`: of KeyAnswer::sent and received.
    AheadUnits(redis::Client& client, microseconds (*clock)() noexcept);
    AheadUnits(const AheadUnits&) = delete;
    AheadUnits& operator=(const AheadUnits&) = delete;

    std::size_t hash_of(std::string_view redis_key) const noexcept
    {
        return keys_.hash_of(redis_key);
    }
    /// The units of the key that have no answer.
    std::int64_t unanswered(std::string_view redis_key) noexcept
    {
        return idle() ? 0 : unanswered(redis_key, hash_of(redis_key));
    }
    std::int64_t unanswered(std::string_view redis_key, std::size_t hash) noexcept;

    /// The report that takes the units of a request. Then exactly one of `add` and `drop` must be
    /// called. `n`: of ahead=, the most units without an answer. `hash`: hash_of its key in Redis.
    /// Null: too many keys have units without an answer, or there is no memory.
    AheadReport* prepare(const Receipt& limit, std::int64_t n, std::size_t hash) noexcept;
    /// The request passes.
    void add(AheadReport& report, std::int64_t units) noexcept;
    void drop(AheadReport& report) noexcept;

    /// Call before add: the request refers to the report, until it calls release.
    static void hold(AheadReport& report) noexcept { ++report.users_; }
    void release(AheadReport& report) noexcept;
    /// Returns units of such a request, which cost less than was added. Redis may have counted them
    /// already.
    void give_back(AheadReport& report, std::int64_t units) noexcept;

    /// Sends the waiting units of the key before another call of the key, which should find them
    /// counted.
    void send_waiting(std::string_view redis_key) noexcept;

    /// Whether no units are without an answer.
    bool idle() const noexcept { return keys_.size() == 0; }

    /// The process exits. Call before the client is closed: reports that were written are taken for
    /// executed, and all others are in the client's outbox.
    void close() noexcept;

    /// The most reports, which bounds the memory.
    static constexpr std::size_t most = 16'384;

private:
    friend class AheadReport;

    UnansweredKey* find(std::size_t hash, std::string_view redis_key) noexcept;
    AheadReport& begin(UnansweredKey& of, const Receipt& limit, std::int64_t n);
    void send(AheadReport& report) noexcept { client_.outbox().send(report); }
    void send_soon(AheadReport& report) noexcept;
    void send_paused() noexcept;
    void end(AheadReport& report) noexcept;
    void refund_counted(AheadReport& report, std::int64_t units, redis::Client& by) noexcept;
    void forget_unused(UnansweredKey& of) noexcept;

    redis::Client& client_;
    microseconds (*const clock_)() noexcept;
    EntryTable<UnansweredKey> keys_;
    ReusePool<AheadReport> reports_;
    std::size_t count_ = 0;     // reports that are in use
    List<AheadReport> paused_;  // to be sent when the pause ends
    const std::size_t group_;   // in the outbox
    std::unique_ptr<Timer> pause_timer_;
    bool closed_ = false;
};

}  // namespace ratelimit

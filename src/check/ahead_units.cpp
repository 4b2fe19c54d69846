#include "check/ahead_units.h"

#include "check/limit_owner.h"
#include "check/script_reply.h"
#include "check/settlement.h"

#include <utility>

namespace ratelimit {

namespace {

constexpr milliseconds retry_pause{ 200 };  // before a report that failed is sent again
constexpr milliseconds busy_pause{ 10 };    // between reports of a busy key

}  // namespace

void AheadReport::write_numbers(redis::ScriptArguments& arguments) const
{
    write_sequence_numbers(receipt_, units_, arguments);
}

redis::Owed::Terms AheadReport::terms() const noexcept
{
    return { receipt_.shard, all_.group_, Rank::counts, began_ };
}

/// For the first time, or again.
void AheadReport::begin_sending() noexcept
{
    Link<AheadReport>::unlink();
    if (of_->waiting == this) {
        of_->waiting = nullptr;
        ++of_->under_way;
    }
    of_->sent = client().now();
    sent_ = all_.clock_();
}

bool AheadReport::on_answer(redis::ReplyPart part) noexcept
{
    KeyReply reply;
    if (!read_whole_reply(part, receipt_.policy, reply)) {
        return false;
    }
    of_->units -= units_;
    const KeyAnswer answer{ reply.remaining, reply.retry_after.value_or(microseconds{ 0 }).count(),
                            reply.reset,     reply.server_time,
                            sent_,           all_.clock_() };
    receipt_.owner->ahead_answered(receipt_, answer, of_->units);
    counted_ = { units_, answer.decided, answer.reset };
    if (returned_ > 0) {
        all_.refund_counted(*this, std::exchange(returned_, 0), client());
    }
    all_.end(*this);
    return true;
}

void AheadReport::on_failure(redis::Fate fate) noexcept
{
    if (fate == redis::Fate::lost) {
        receipt_.owner->ahead_uncertain(receipt_);
    }
    if (units_ == 0 || (all_.closed_ && maybe_executed(fate))) {
        of_->units -= units_;
        all_.end(*this);
    } else {
        outbox().keep(*this, retry_pause);
    }
}

AheadUnits::AheadUnits(redis::Client& client, microseconds (*clock)() noexcept)
    : client_(client),
      clock_(clock),
      group_(client.outbox().add_group()),
      pause_timer_(client.loop().make_timer([this] { send_paused(); }))
{
}

UnansweredKey* AheadUnits::find(std::size_t hash, std::string_view redis_key) noexcept
{
    return keys_.find(
        hash, [redis_key](const UnansweredKey& of) { return of.redis_key == redis_key; });
}

std::int64_t AheadUnits::unanswered(std::string_view redis_key, std::size_t hash) noexcept
{
    const UnansweredKey* of = find(hash, redis_key);
    return of == nullptr ? 0 : of->units;
}

AheadReport* AheadUnits::prepare(const Receipt& limit, std::int64_t n, std::size_t hash) noexcept
{
    UnansweredKey* of = find(hash, limit.redis_key);
    if (of != nullptr && of->waiting != nullptr) {
        if (of->waiting->receipt_.policy_hash == limit.policy_hash) {
            return of->waiting;
        }
        send(*of->waiting);
        of = find(hash, limit.redis_key);  // it may have ended
    }
    if (count_ >= most) {
        return nullptr;
    }
    try {
        if (of == nullptr) {
            of = &keys_.add(hash);
            of->sent = milliseconds{ 0 };
            of->redis_key.erase().append(limit.redis_key);
        }
        return &begin(*of, limit, n);
    } catch (const std::exception&) {
        if (of != nullptr) {
            forget_unused(*of);
        }
        return nullptr;
    }
}

AheadReport& AheadUnits::begin(UnansweredKey& of, const Receipt& limit, std::int64_t n)
{
    AheadReport& report = reports_.take(*this);
    try {
        // An assignment takes twice the instructions: it expects text that overlaps.
        report.redis_key_.erase().append(limit.redis_key);
        report.key_.erase().append(limit.key);
    } catch (const std::exception&) {
        reports_.give_back(report);
        throw;
    }
    report.of_ = &of;
    report.units_ = report.returned_ = 0;
    report.enough_ = n / 2;
    report.counted_.reset();
    report.receipt_ = limit;
    report.receipt_.redis_key = report.redis_key_;
    report.receipt_.key = report.key_;
    report.receipt_.shard = client_.shard_of(limit.redis_key);
    report.began_ = client_.now();
    ++count_;
    of.waiting = &report;
    return report;
}

void AheadUnits::add(AheadReport& report, std::int64_t units) noexcept
{
    report.units_ += units;
    report.of_->units += units;
    if (report.of_->under_way == 0) {
        send_soon(report);
    }
}

/// No report of the key is under way.
void AheadUnits::send_soon(AheadReport& report) noexcept
{
    if (client_.now() - report.of_->sent >= busy_pause || report.units_ >= report.enough_) {
        send(report);
        return;
    }
    paused_.push_back(report);
    if (!pause_timer_->running()) {
        pause_timer_->start(busy_pause);
    }
}

void AheadUnits::send_paused() noexcept
{
    List<AheadReport> now;
    now.take_all(paused_);
    while (!now.empty()) {
        send(now.pop_front());
    }
}

void AheadUnits::drop(AheadReport& report) noexcept
{
    UnansweredKey& of = *report.of_;
    if (report.units_ == 0 && report.users_ == 0) {
        of.waiting = nullptr;
        report.Link<AheadReport>::unlink();
        --count_;
        reports_.give_back(report);
        forget_unused(of);
    }
}

void AheadUnits::release(AheadReport& report) noexcept
{
    if (--report.users_ == 0 && report.of_ == nullptr) {
        reports_.give_back(report);
    }
}

void AheadUnits::give_back(AheadReport& report, std::int64_t units) noexcept
{
    if (report.of_ == nullptr) {
        refund_counted(report, units, client_);
    } else if (report.of_->waiting == &report) {
        report.units_ -= units;
        report.of_->units -= units;
    } else {
        report.returned_ += units;
    }
}

/// Units that Redis counted at an unknown time stay counted.
void AheadUnits::refund_counted(AheadReport& report, std::int64_t units, redis::Client& by) noexcept
{
    if (!report.counted_) {
        by.count_failed();
        return;
    }
    const Refund counted{ units, report.counted_->taken_at, report.counted_->reset };
    settle(by, report.receipt_, counted, 0, clock_());
}

void AheadUnits::send_waiting(std::string_view redis_key) noexcept
{
    UnansweredKey* of = idle() ? nullptr : find(hash_of(redis_key), redis_key);
    if (of != nullptr && of->waiting != nullptr) {
        send(*of->waiting);
    }
}

/// The report is answered, or given up.
void AheadUnits::end(AheadReport& report) noexcept
{
    UnansweredKey& of = *std::exchange(report.of_, nullptr);
    report.outbox().settled(report);
    if (report.users_ == 0) {
        reports_.give_back(report);
    }
    --count_;
    --of.under_way;
    if (of.waiting != nullptr && of.under_way == 0) {
        send_soon(*of.waiting);
    } else {
        forget_unused(of);
    }
}

void AheadUnits::forget_unused(UnansweredKey& of) noexcept
{
    if (of.waiting == nullptr && of.under_way == 0) {
        keys_.remove(of);
    }
}

void AheadUnits::close() noexcept
{
    closed_ = true;
    pause_timer_->stop();
    keys_.each([this](UnansweredKey& of) {
        if (AheadReport* const report = std::exchange(of.waiting, nullptr)) {
            ++of.under_way;
            report->Link<AheadReport>::unlink();
            client_.outbox().keep(*report, milliseconds{ 0 });
        }
    });
}

}  // namespace ratelimit

#pragma once

#include "base/list.h"
#include "loop/event_loop.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace ratelimit::redis {

class UnsettledKeys;

/// Marks a key whose count in Redis may differ from what requests used: a late reply is awaited, or
/// a settlement is under way or waits for another try.
class Unsettled : public Link<Unsettled> {
public:
    /// `age`: how long ago the count began to differ.
    Unsettled(
        UnsettledKeys& all, std::string_view key, milliseconds age = milliseconds{ 0 }) noexcept;
    ~Unsettled();
    Unsettled(const Unsettled&) = delete;
    Unsettled& operator=(const Unsettled&) = delete;

private:
    friend class UnsettledKeys;

    UnsettledKeys& all_;
    const std::size_t hash_;
};

/// The marked keys. Keys of equal hashes are taken for one. A process that leaves waits as long as
/// there are such keys, or Outbox owes something, but no longer than a minute after it began to
/// leave, or after the newest count began to differ.
class UnsettledKeys {
public:
    explicit UnsettledKeys(EventLoop& loop)
        : loop_(loop), delays_exit_(loop.make_timer([this] { delay_exit(); }))
    {
    }

    /// The process leaves. Call it at least once a second.
    void leave() noexcept
    {
        if (!std::exchange(leaving_, true)) {
            newest_ = loop_.now();
        }
    }

    /// A count differs; then end() must be called. `began`: since when, by the loop's clock.
    void begin(milliseconds began) noexcept
    {
        newest_ = std::max(newest_, began);
        if (count_++ == 0 || leaving_) {
            delay_exit();
        }
    }
    void end() noexcept
    {
        if (--count_ == 0) {
            delays_exit_->delay_exit(false);
        }
    }

    bool empty() const noexcept { return count_ == 0; }
    bool contains(std::string_view key) const noexcept
    {
        const std::size_t hash = hash_of(key);
        bool found = false;
        buckets_[hash % buckets_.size()].each(
            [&](const Unsettled& each) { found = found || each.hash_ == hash; });
        return found;
    }

private:
    friend class Unsettled;

    static constexpr milliseconds longest_delay{ 60'000 };
    static constexpr milliseconds look{ 2'000 };  // more than a second: see leave()

    void delay_exit() noexcept
    {
        const bool delays = count_ > 0 && (!leaving_ || loop_.now() - newest_ < longest_delay);
        delays_exit_->delay_exit(delays);
        if (delays && !delays_exit_->running()) {
            delays_exit_->start(look);
        }
    }

    static std::size_t hash_of(std::string_view key) noexcept
    {
        return std::hash<std::string_view>{}(key);
    }

    std::array<List<Unsettled>, 256> buckets_;
    std::size_t count_ = 0;
    EventLoop& loop_;
    milliseconds newest_{ 0 };
    bool leaving_ = false;
    std::unique_ptr<Timer> delays_exit_;
};

inline Unsettled::Unsettled(UnsettledKeys& all, std::string_view key, milliseconds age) noexcept
    : all_(all), hash_(UnsettledKeys::hash_of(key))
{
    all.buckets_[hash_ % all.buckets_.size()].push_back(*this);
    all.begin(all.loop_.now() - age);
}

inline Unsettled::~Unsettled()
{
    all_.end();
}

}  // namespace ratelimit::redis

#pragma once

#include "check/coalescer.h"
#include "check/script_text.h"
#include "redis/batcher.h"
#include "redis_server.h"

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit {

using namespace std::chrono_literals;

/// Time that only the test moves, of all workers and of Redis.
inline microseconds virtual_now{ 1'800'000'000s };

/// A loop whose timers the test fires.
class VirtualLoop final : public EventLoop {
public:
    bool attach(redisAsyncContext&) noexcept override { return false; }
    std::unique_ptr<Timer> make_timer(std::function<void()> fired) override
    {
        return std::make_unique<VirtualTimer>(*this, std::move(fired));
    }
    std::unique_ptr<EndOfTurn> make_end_of_turn(std::function<void()>) override { return nullptr; }
    std::unique_ptr<Lookup> look_up(
        const std::string&, std::function<void(const Addresses&)>) override
    {
        return nullptr;
    }
    milliseconds now() const noexcept override
    {
        return std::chrono::duration_cast<milliseconds>(virtual_now);
    }
    /// Fires the timers that are due.
    void fire()
    {
        const auto all = timers_;
        for (auto* timer : all) {
            timer->fire();
        }
    }
    bool keeps_process() const
    {
        return std::any_of(timers_.begin(), timers_.end(), [](const VirtualTimer* timer) {
            return timer->running() && timer->delays_exit_;
        });
    }

private:
    struct VirtualTimer final : Timer {
        VirtualTimer(VirtualLoop& of, std::function<void()> what) : loop(of), fired(std::move(what))
        {
        }
        ~VirtualTimer() override { loop.timers_.erase(at); }
        void start(milliseconds delay) noexcept override { due = loop.now() + delay; }
        void stop() noexcept override { due = milliseconds::max(); }
        bool running() const noexcept override { return due != milliseconds::max(); }
        void delay_exit(bool choice) noexcept override { delays_exit_ = choice; }
        void fire()
        {
            if (due <= loop.now()) {
                stop();
                fired();
            }
        }

        VirtualLoop& loop;
        std::list<VirtualTimer*>::iterator at = loop.timers_.insert(loop.timers_.end(), this);
        std::function<void()> fired;
        milliseconds due = milliseconds::max();
        bool delays_exit_ = false;
    };

    std::list<VirtualTimer*> timers_;
};

/// A message on its way to Redis and back. Redis may execute it at any time.
struct Message {
    explicit Message(redis::Call& call) { record.attach(call); }

    redis::PendingCall record;  // the call is null if it was destroyed
    microseconds sent = virtual_now - 1'000'000s;
    std::string command;
    std::string reply;
    bool executed = false;
};

/// A client whose network is the test: each call is written at once, and waits for its fate.
class ManualClient final : public redis::Client {
public:
    ManualClient(
        EventLoop& loop, const redis::ScriptRegistry& scripts, redis::ClientEvents& events,
        const redis::ScriptRegistry& written)
        : Client({ loop, options(), scripts, events }), written_(written)
    {
    }
    ~ManualClient() override { close(); }

    bool refuses(std::uint32_t) const noexcept override { return away; }
    std::uint32_t shard_of(std::string_view) const noexcept override { return 0; }
    redis::ServerClock* clock_of(std::uint32_t) const noexcept override { return &clock; }
    std::uint32_t server_of(std::uint32_t shard) const noexcept override
    {
        const auto found = servers.find(shard);
        return found == servers.end() ? shard : found->second;
    }

    std::map<std::uint32_t, std::uint32_t> servers;  // of shards; else the number is the same
    std::list<Message> messages;
    mutable redis::ServerClock clock;
    bool away = false;

private:
    static redis::ClientOptions options()
    {
        redis::ClientOptions options;
        options.server.timeout = 100ms;
        options.server.connect_timeout = 250ms;
        return options;
    }
    redis::Server* server_at(std::uint32_t) const noexcept override { return nullptr; }
    std::optional<std::uint32_t> number_of(const redis::Server&) const noexcept override
    {
        return std::nullopt;
    }
    void connect() override {}
    void disconnect() noexcept override {}
    void each_server(const std::function<void(redis::Server&)>&) override {}
    bool route(redis::Call& call) override
    {
        if (away) {
            return false;
        }
        Message& message = messages.emplace_back(call);
        redis::CallQueue single;
        single.push(message.record);
        redis::CommandBuffer command(written_);
        redis::write_command(single, command);
        call.routing.written = true;
        message.command = command.text();
        return true;
    }

    const redis::ScriptRegistry& written_;  // whose digests are written
};

}  // namespace ratelimit

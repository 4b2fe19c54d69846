#pragma once

#include "check/script_text.h"
#include "redis/batcher.h"
#include "redis_server.h"
#include "trace_maker.h"
#include "virtual_client.h"

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit {

/// Lua before a script: the time is that of the test, also the time for which keys last.
inline constexpr std::string_view test_clock = R"lua(
local redis = redis
do
    local real = redis
    local now = real.call('GET', 'clock') + 0
    for _, key in ipairs(KEYS) do
        local ends = real.call('GET', 'end of ' .. key)
        if ends and ends + 0 <= now then
            real.call('DEL', key, 'end of ' .. key)
        end
    end
    local function last(key, milliseconds)
        real.call('SET', 'end of ' .. key, string.format('%d', now + milliseconds * 1000))
    end
    redis = {
        pcall = real.pcall,
        call = function(command, key, ...)
            if command == 'TIME' then
                return { math.floor(now / 1000000), now % 1000000 }
            elseif command == 'PEXPIRE' then
                return last(key, ...)
            elseif command == 'SET' then
                local value, _, milliseconds = ...
                last(key, milliseconds)
                return real.call('SET', key, value)
            end
            return real.call(command, key, ...)
        end,
    }
end
)lua";

class HoldingTest : public testing::Test, protected TraceMaker {
protected:
    static constexpr Policy policy{ Algorithm::concurrency, { 5, 60s }, {}, {}, {} };

    struct Worker;

    /// A request: its part, and what it has when it is answered.
    struct Held final : ShardPart {
        Held(Worker& of, std::vector<RemoteLimit> all) : worker(of), limits_(std::move(all))
        {
            for (RemoteLimit& limit : limits_) {
                limit.key = limit.redis_key = keys_.emplace_back(limit.redis_key);
                pointers_.push_back(&limit);
            }
            limits = pointers_;
        }
        void ended() noexcept override {}
        std::int64_t units() const { return limits_.front().held.units(); }
        const Verdict& state() const { return limits_.front().state; }

        Worker& worker;

    private:
        std::deque<std::string> keys_;
        std::vector<RemoteLimit> limits_;
        std::vector<RemoteLimit*> pointers_;
    };

    struct Worker {
        explicit Worker(HoldingTest& test)
            : client(loop, test.scripts_, test.events_, test.loaded_),
              coalescer(
                  client, +[]() noexcept { return virtual_now; }),
              holdings({ client, policy.rate.window,
                         +[]() noexcept { return virtual_now - 1'000'000s; },
                         [this](std::int64_t units) { counted += units; } })
        {
        }
        ~Worker()
        {
            holdings.close();
            requests.clear();
        }

        std::int64_t counted = 0;
        VirtualLoop loop;
        ManualClient client;
        Coalescer coalescer;
        Holdings holdings;
        std::list<Held> requests;
    };

    void SetUp() override
    {
        virtual_now += 1s;  // the process knows what the test before it stated last, and when
        const SequenceLimit concurrency{ Algorithm::concurrency };
        const std::array both{ concurrency, SequenceLimit{ Algorithm::fixed_window } };
        const std::array algorithms{ Algorithm::concurrency, Algorithm::fixed_window };
        single_.emplace(std::span{ &concurrency, 1 }, scripts_);
        both_.emplace(both, scripts_);
        single_->of(1);
        for (const std::size_t limits : { 1, 2, 3 }) {
            both_->of(limits);
        }
        several_ = scripts_.add(several_script(algorithms));
        statement_ = scripts_.add(single_script(Algorithm::concurrency));
        redis_ = redisConnectUnix(server_.socket_path().c_str());
        ASSERT_EQ(redis_->err, 0);
        load_added();
    }
    void TearDown() override
    {
        workers_.clear();
        redisFree(redis_);
    }

    redis::ScriptId load(const std::string& script)
    {
        const redis::ScriptId id = scripts_.add(script);
        load_added();
        return id;
    }
    /// Loads the scripts that were added, with the clock of the test.
    void load_added()
    {
        for (std::size_t i = loaded_.size(); i < scripts_.size(); ++i) {
            const std::string text =
                std::string(test_clock) + scripts_.at(static_cast<redis::ScriptId>(i)).text;
            const std::string digest = ask("SCRIPT LOAD %b", text.data(), text.size());
            EXPECT_EQ(digest.size(), 40U) << digest;
            loaded_.add(text);
        }
    }

    template <class... Words>
    std::string ask(const char* format, Words... words)
    {
        return text_of(static_cast<redisReply*>(redisCommand(redis_, format, words...)));
    }
    static std::string text_of(redisReply* reply)
    {
        std::string text(reply->str == nullptr ? "" : reply->str, reply->len);
        EXPECT_NE(reply->type, REDIS_REPLY_ERROR) << text;
        freeReplyObject(reply);
        return text;
    }

    std::string execute(const std::string& command)
    {
        ask("SET clock %lld", static_cast<long long>((virtual_now + skew_).count()));
        redisAppendFormattedCommand(redis_, command.data(), command.size());
        void* reply = nullptr;
        EXPECT_EQ(redisGetReply(redis_, &reply), REDIS_OK);
        return text_of(static_cast<redisReply*>(reply));
    }

    Worker& worker(std::size_t index) { return *workers_[index]; }
    Worker& add_worker() { return *workers_.emplace_back(std::make_unique<Worker>(*this)); }

    RemoteLimit limit_of(
        Worker& of, std::string_view key, std::int64_t cost, Holdings* zone = nullptr)
    {
        Holdings& holdings = zone != nullptr ? *zone : of.holdings;
        RemoteLimit limit;
        limit.redis_key = key;
        limit.policy = policy;
        limit.cost = cost;
        limit.coalescer = &of.coalescer;
        limit.scripts.several = several_;
        limit.scripts.statement = statement_;
        limit.scripts.sequences = &*single_;
        limit.scripts.bit = SequenceScripts::bit(0);
        limit.holdings = cost > 0 ? &holdings : nullptr;
        return limit;
    }

    /// `other`: the key of another limit; empty: none.
    Held& request(
        Worker& of, std::int64_t cost = 1, std::string_view other = {}, Policy by = policy)
    {
        std::vector<RemoteLimit> limits;
        limits.push_back(limit_of(of, "{k}", cost));
        limits.front().policy = by;
        if (!other.empty()) {
            limits.front().scripts.sequences = &*both_;
            RemoteLimit& other_limit = limits.emplace_back(limit_of(of, other, 1));
            other_limit.policy = { Algorithm::fixed_window, { 1'000'000, 24h }, {}, {}, {} };
            other_limit.holdings = nullptr;
            other_limit.scripts.sequences = &*both_;
            other_limit.scripts.bit = SequenceScripts::bit(1);
        }
        return send(of, std::move(limits));
    }
    /// A request that holds a unit of each of these keys. Each key is a limit.
    Held& request_of(Worker& of, const std::vector<std::string_view>& keys)
    {
        std::vector<RemoteLimit> limits;
        for (const std::string_view key : keys) {
            limits.push_back(limit_of(of, key, 1));
            if (keys.size() > 1) {
                limits.back().scripts.sequences = nullptr;
            }
        }
        return send(of, std::move(limits));
    }
    /// Holds a unit of each of the keys "{0}", "{1}" and so on.
    void hold_keys(Worker& of, int count)
    {
        for (int i = 0; i < count; ++i) {
            request_of(of, { "{" + std::to_string(i) + "}" });
        }
    }
    /// Keys of which this worker holds nothing any longer when all is answered.
    void use_keys(Worker& of, int count)
    {
        for (int i = 0; i < count; ++i) {
            end(request_of(of, { "{" + std::to_string(i) + "}" }));
        }
    }
    static Held& send(Worker& of, std::vector<RemoteLimit> limits)
    {
        Held& made = of.requests.emplace_back(of, std::move(limits));
        of.coalescer.send(made);
        return made;
    }
    static Held& send(Worker& of, RemoteLimit limit)
    {
        std::vector<RemoteLimit> limits;
        limits.push_back(std::move(limit));
        return send(of, std::move(limits));
    }
    void end(Held& request)
    {
        request.worker.requests.remove_if([&](const Held& each) { return &each == &request; });
    }

    void deliver(Worker& of, Message& message)
    {
        redis::Call* call = message.record.release();
        if (call == nullptr) {
            return;
        }
        redisReply reply{};
        reply.type = REDIS_REPLY_STRING;
        reply.str = message.reply.data();
        reply.len = message.reply.size();
        redis::ServerClock* clock = clock_ != nullptr ? clock_ : &of.client.clock;
        const redis::Exchange exchange{ clock, message.sent, virtual_now - 1'000'000s };
        EXPECT_TRUE(redis::deliver(*call, message.record.part, reply, exchange, 0, 1));
    }
    static void fail(Message& message, redis::Fate fate)
    {
        if (redis::Call* call = message.record.release()) {
            call->ended(fate);
        }
    }
    /// Removes the message before its fate is told, since that sends others.
    template <class Do>
    static void take(Worker& of, std::list<Message>::iterator message, Do&& act)
    {
        std::list<Message> taken;
        taken.splice(taken.begin(), of.client.messages, message);
        act(taken.front());
    }
    void answer(Worker& of, std::list<Message>::iterator message)
    {
        take(of, message, [&](Message& taken) {
            taken.reply = taken.executed ? taken.reply : execute(taken.command);
            deliver(of, taken);
        });
    }

    /// Until no message is on its way; others may be sent meanwhile.
    static void fail_all(Worker& of, redis::Fate fate)
    {
        while (!of.client.messages.empty()) {
            take(of, of.client.messages.begin(), [fate](Message& message) { fail(message, fate); });
        }
    }
    void answer_all(Worker& of)
    {
        while (!of.client.messages.empty()) {
            answer(of, of.client.messages.begin());
        }
    }

    /// Lets time pass.
    static void wait(Worker& of, milliseconds time)
    {
        for (milliseconds passed{ 0 }; passed < time; passed += 1ms) {
            virtual_now += 1ms;
            of.loop.fire();
        }
    }
    /// Answers everything, until nothing more is sent.
    void settle()
    {
        for (int quiet = 0; quiet < 5;) {
            ++quiet;
            for (const auto& of : workers_) {
                quiet = of->client.messages.empty() ? quiet : 0;
                answer_all(*of);
                of->loop.fire();
            }
            virtual_now += 60ms;
        }
    }

    std::int64_t held() const
    {
        std::int64_t sum = 0;
        for (const auto& of : workers_) {
            for (const Held& request : of->requests) {
                sum += request.units();
            }
        }
        return sum;
    }
    /// What Redis says that remains.
    std::int64_t remaining()
    {
        Worker& any = workers_.empty() ? add_worker() : worker(0);
        Held& peek = request(any, 0);
        answer(any, std::prev(any.client.messages.end()));
        const std::int64_t remains = peek.state().remaining;
        end(peek);
        return remains;
    }
    /// Nothing is held, and after `hold` nothing has to be stated again.
    static void expect_over(Holdings& holdings)
    {
        virtual_now += policy.rate.window;
        EXPECT_TRUE(holdings.rest());
    }
    /// The statement that is sent first frees all units of {k}.
    void expect_free_after_first_statement(Worker& of)
    {
        wait(of, 1ms);
        ASSERT_FALSE(of.client.messages.empty());
        answer(of, of.client.messages.begin());
        EXPECT_EQ(remaining(), policy.rate.quota);
    }

    RedisServer server_;
    redisContext* redis_ = nullptr;
    redis::ScriptRegistry scripts_;
    redis::ScriptRegistry loaded_;  // with the clock of the test
    redis::ClientEvents events_;
    std::optional<SequenceScripts> single_;
    std::optional<SequenceScripts> both_;
    redis::ScriptId several_{};
    redis::ScriptId statement_{};
    microseconds skew_{ 0 };               // of Redis's clock
    redis::ServerClock* clock_ = nullptr;  // of the server that answers; null: of the client's
    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace ratelimit

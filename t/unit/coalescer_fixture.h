#pragma once

#include "all_algorithms.h"
#include "check/coalescer.h"
#include "check/script_text.h"
#include "client_fixture.h"
#include "mock_server.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ratelimit {

/// One limit of a request of the tests.
struct Asked {
    std::string key = "key";
    Policy policy{ Algorithm::fixed_window, { 100, std::chrono::hours{ 24 } }, {}, {} };
    std::int64_t cost = 1;
    bool shadow = false;
    std::optional<microseconds> now = std::nullopt;
};

/// A request whose limits are in one shard, and what became of it.
class Request final : public ShardPart {
public:
    Request(Coalescer& coalescer, CheckScripts scripts, std::vector<Asked> all, bool without_others)
        : asked_(std::move(all)), limits_(asked_.size())
    {
        for (std::size_t i = 0; i < asked_.size(); ++i) {
            const Asked& asked = asked_[i];
            RemoteLimit& limit = limits_[i];
            static_cast<LimitCheck&>(limit) = { asked.key, asked.policy, asked.cost, asked.shadow,
                                                asked.now };
            limit.coalescer = &coalescer;
            limit.scripts = scripts;
            pointers_.push_back(&limit);
        }
        limits = pointers_;
        alone = without_others;
    }

    void ended() noexcept override
    {
        ++ends;
        if (then) {
            then();
        }
    }

    bool answered() const noexcept { return end == End::answered; }
    bool failed() const noexcept { return end == End::failed; }
    const Verdict& state(std::size_t limit = 0) const { return limits_[limit].state; }
    std::int64_t remaining() const { return state().remaining; }
    std::vector<Verdict> states() const
    {
        std::vector<Verdict> states;
        for (const RemoteLimit& limit : limits_) {
            states.push_back(limit.state);
        }
        return states;
    }

    int ends = 0;
    std::function<void()> then;

private:
    std::vector<Asked> asked_;
    std::vector<RemoteLimit> limits_;
    std::vector<RemoteLimit*> pointers_;
};

/// A coalescer over a client of one server.
class CoalescerTest : public ClientTest {
protected:
    void begin(redis::ClientOptions options)
    {
        for (const Algorithm algorithm : all_algorithms) {
            singles_.push_back(scripts_.add(single_script(algorithm)));
        }
        several_ = scripts_.add(several_script(all_algorithms));
        start_ready(std::move(options));
        coalescer_.emplace(*client_);
    }

    Request& make(std::vector<Asked> limits, bool alone = true)
    {
        CheckScripts scripts;
        scripts.single = singles_[static_cast<std::size_t>(limits.front().policy.algorithm)];
        scripts.several = several_;
        requests_.push_back(
            std::make_unique<Request>(*coalescer_, scripts, std::move(limits), alone));
        return *requests_.back();
    }

    Request& send(std::vector<Asked> limits, bool alone = true)
    {
        Request& request = make(std::move(limits), alone);
        sent_.push_back(coalescer_->send(request));
        return request;
    }
    Request& send(const Asked& limit = {}) { return send(std::vector{ limit }); }

    /// Until all that were sent have ended.
    bool run()
    {
        return loop_.run_until([this] {
            return std::all_of(requests_.begin(), requests_.end(), [](const auto& request) {
                return request->end != ShardPart::End::pending;
            });
        });
    }

    std::vector<std::int64_t> remaining() const
    {
        std::vector<std::int64_t> all;
        for (const auto& request : requests_) {
            all.push_back(request->answered() ? request->remaining() : -1);
        }
        return all;
    }

    /// How many requests have this end.
    std::ptrdiff_t count(ShardPart::End end) const
    {
        return std::count_if(requests_.begin(), requests_.end(), [end](const auto& request) {
            return request->end == end;
        });
    }

    std::vector<redis::ScriptId> singles_;
    redis::ScriptId several_{};
    std::optional<Coalescer> coalescer_;
    std::deque<std::unique_ptr<Request>> requests_;
    std::vector<bool> sent_;
};

}  // namespace ratelimit

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

/// A request whose limits are in one place, and what it was told.
class Request final : public CheckGroup::Owner {
public:
    Request(Coalescer& coalescer, CheckScripts scripts, std::vector<Asked> limits, bool alone)
        : limits_(std::move(limits)), states(limits_.size()), checks(limits_.size())
    {
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            const Asked& limit = limits_[i];
            static_cast<LimitCheck&>(checks[i]) = { limit.key, limit.policy, limit.cost,
                                                    limit.shadow, limit.now };
            checks[i].coalescer = &coalescer;
            checks[i].scripts = scripts;
            checks[i].state = &states[i];
        }
        group.set(checks, alone, *this);
    }

    void group_ended(CheckGroup&) noexcept override
    {
        ++ends;
        if (then) {
            then();
        }
    }
    void taken_ahead(
        CheckGroup&, std::span<const BatchAnswer> answers, std::int64_t spent) noexcept override
    {
        ahead.assign(answers.begin(), answers.end());
        ahead_spent = spent;
    }
    void group_apart(CheckGroup&) noexcept override { ++aparts; }

    bool answered() const noexcept { return group.end() == CheckGroup::End::answered; }
    bool failed() const noexcept { return group.end() == CheckGroup::End::failed; }
    std::int64_t remaining() const { return states.front().remaining; }

private:
    std::vector<Asked> limits_;

public:
    std::vector<LimitState> states;
    std::vector<RemoteCheck> checks;
    CheckGroup group;
    int ends = 0;
    int aparts = 0;
    std::vector<BatchAnswer> ahead;
    std::int64_t ahead_spent = 0;
    std::function<void()> then;
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
        sent_.push_back(request.group.send());
        return request;
    }
    Request& send(const Asked& limit = {}) { return send(std::vector{ limit }); }

    /// Until all that were sent have ended.
    bool run()
    {
        return loop_.run_until([this] {
            return std::all_of(requests_.begin(), requests_.end(), [](const auto& request) {
                return request->group.end() != CheckGroup::End::pending;
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
    std::ptrdiff_t count(CheckGroup::End end) const
    {
        return std::count_if(requests_.begin(), requests_.end(), [end](const auto& request) {
            return request->group.end() == end;
        });
    }

    std::vector<redis::ScriptId> singles_;
    redis::ScriptId several_{};
    std::optional<Coalescer> coalescer_;
    std::deque<std::unique_ptr<Request>> requests_;
    std::vector<bool> sent_;
};

}  // namespace ratelimit

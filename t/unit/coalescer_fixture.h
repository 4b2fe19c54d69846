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

/// One limit of a request in the tests.
struct Asked {
    std::string key = "key";
    Policy policy{ Algorithm::fixed_window, { 100, std::chrono::hours{ 24 } }, {}, {} };
    std::int64_t cost = 1;
    bool shadow = false;
    std::optional<microseconds> now = std::nullopt;
};

/// A request whose limits are in one shard, and its result.
class Request final : public ShardPart {
public:
    Request(Coalescer& coalescer, CheckScripts scripts, std::vector<Asked> all)
        : given_(std::move(all)), limits_(given_.size())
    {
        for (std::size_t i = 0; i < given_.size(); ++i) {
            const Asked& given = given_[i];
            RemoteLimit& limit = limits_[i];
            static_cast<LimitCheck&>(limit) = { given.key, given.policy, given.cost, given.shadow,
                                                given.now };
            limit.key = given.key;
            limit.coalescer = &coalescer;
            limit.shard = coalescer.client().shard_of(given.key);
            limit.scripts = scripts;
            limit.scripts.bit = SequenceScripts::bit(i);
            pointers_.push_back(&limit);
        }
        limits = pointers_;
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
    std::vector<Asked> given_;
    std::vector<RemoteLimit> limits_;
    std::vector<RemoteLimit*> pointers_;
};

/// A coalescer over a client of one server.
class CoalescerTest : public ClientTest {
protected:
    void begin(redis::ClientOptions options)
    {
        for (const Algorithm algorithm : all_algorithms) {
            add_sequence({ { algorithm } });
        }
        several_ = scripts_.add(several_script(all_algorithms));
        start_ready(std::move(options));
        coalescer_.emplace(
            *client_, +[]() noexcept { return node_time; });
    }

    /// With a server that has the scripts.
    void begin(const RedisServer& server)
    {
        begin(options_to(server.port()));
        load_scripts(server);
    }

    /// Before begin: requests of exactly these limits are decided by a script of their own.
    void add_sequence(const std::vector<SequenceLimit>& limits)
    {
        SequenceScripts& scripts =
            sequences_.emplace_back(Sequence{ limits, { limits, scripts_ } }).scripts;
        scripts.of(SequenceScripts::bit(limits.size()) - 1);
        for (std::size_t i = 0; i < limits.size(); ++i) {
            scripts.of(SequenceScripts::bit(i));
        }
    }
    SequenceScripts* sequence_of(const std::vector<Asked>& limits)
    {
        const auto found =
            std::find_if(sequences_.begin(), sequences_.end(), [&](const Sequence& sequence) {
                return std::equal(
                    sequence.limits.begin(), sequence.limits.end(), limits.begin(), limits.end(),
                    [](const SequenceLimit& limit, const Asked& asked) {
                        return limit == SequenceLimit{ asked.policy.algorithm, asked.shadow };
                    });
            });
        return found == sequences_.end() ? nullptr : &found->scripts;
    }

    Request& make(std::vector<Asked> limits)
    {
        CheckScripts scripts;
        scripts.several = several_;
        scripts.sequences = sequence_of(limits);
        requests_.push_back(std::make_unique<Request>(*coalescer_, scripts, std::move(limits)));
        return *requests_.back();
    }

    Request& send(std::vector<Asked> limits)
    {
        Request& request = make(std::move(limits));
        sent_.push_back(coalescer_->send(request));
        return request;
    }
    Request& send(const Asked& limit = {}) { return send(std::vector{ limit }); }

    /// The first one, the third one and so on end.
    void drop_every_second()
    {
        for (std::size_t i = 0; i < requests_.size(); i += 2) {
            requests_[i].reset();
        }
        std::erase(requests_, nullptr);
    }

    /// Runs until all requests have ended.
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

    /// The number of requests with this end.
    std::ptrdiff_t count(ShardPart::End end) const
    {
        return std::count_if(requests_.begin(), requests_.end(), [end](const auto& request) {
            return request->end == end;
        });
    }

    struct Sequence {
        std::vector<SequenceLimit> limits;
        SequenceScripts scripts;
    };
    std::deque<Sequence> sequences_;
    redis::ScriptId several_{};
    /// Since the epoch, by this node's clock.
    static inline microseconds node_time{ 1'795'500'000'000'000 };
    std::optional<Coalescer> coalescer_;
    std::deque<std::unique_ptr<Request>> requests_;
    std::vector<bool> sent_;
};

}  // namespace ratelimit

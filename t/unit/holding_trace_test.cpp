// What workers state of the units that their requests hold, over a network that loses, delays,
// repeats and reorders messages, and a real Redis. Never more units than the limit are held, at
// rest Redis knows exactly what is held, and a refusal has its cause.

#include "holding_fixture.h"

#include <limits>

namespace ratelimit {
namespace {

class HoldingTrace : public HoldingTest {
protected:
    /// Units of a request, and when they may have refused others, in steps.
    struct Seen {
        const Held* request;
        Worker* worker;
        std::int64_t units;
        int begun;
        int over = never;  // from then on, no other request can be refused because of it
        int ended = never;
        bool judged = false;
    };
    static constexpr int never = std::numeric_limits<int>::max();

    /// One step of a network and of workers that do their worst.
    void misfortune(Worker& of);
    void step();
    void end_any(Worker& of, int step);
    /// The units that may have been held when it was decided, with its own.
    std::int64_t cause(const Seen& judged) const;

    std::vector<std::string> late_;  // commands that Redis may still execute
    std::vector<Seen> seen_;
};

void HoldingTrace::misfortune(Worker& of)
{
    if (of.client.messages.empty()) {
        return;
    }
    const auto at =
        std::next(of.client.messages.begin(), any(0, std::ssize(of.client.messages) - 1));
    const auto fate = any(0, 19);
    if (fate < 11) {
        answer(of, at);
    } else if (fate < 14) {
        if (!at->executed) {
            at->reply = execute(at->command);
            at->executed = true;
        }
    } else {
        take(of, at, [&](Message& message) {
            if (fate < 16 && !message.executed) {
                fail(message, redis::Fate::failed);
                return;
            }
            if (!message.executed) {
                late_.push_back(message.command);
            }
            fail(message, fate < 18 ? redis::Fate::overdue : redis::Fate::lost);
        });
    }
}

void HoldingTrace::step()
{
    Worker& of = worker(static_cast<std::size_t>(any(0, std::ssize(workers_) - 1)));
    const auto what = any(0, 19);
    if (what < 4) {
        const std::string other = any(0, 2) == 0 ? "{k}" + std::to_string(any(0, 2)) : "";
        Policy by = policy;
        by.reserve = any_of<std::int64_t>({ 0, 0, 1, 3 });
        request(of, any(1, 2), other, by);
    } else if (what < 8 && !of.requests.empty()) {
        end(*std::next(of.requests.begin(), any(0, std::ssize(of.requests) - 1)));
    } else if (what < 16) {
        misfortune(of);
    } else if (what == 16 && !late_.empty()) {
        execute(late_[static_cast<std::size_t>(any(0, std::ssize(late_) - 1))]);
    } else if (what == 17) {
        virtual_now += milliseconds{ any(1, 3) == 1 ? any(100, 600) : any(1, 40) };
        for (const auto& each : workers_) {
            each->loop.fire();
        }
    } else if (what == 18 && any(0, 9) == 0) {
        of.client.away = !of.client.away;
    } else if (what == 19 && any(0, 29) == 0) {
        of.holdings.restate(0);
    }
}
TEST_F(HoldingTrace, losses_and_late_messages_let_none_too_many_in_and_leave_nothing_held)
{
    const std::int64_t traces = from_environment("TRACE_STEPS", 60'000) / 100;
    for (std::int64_t trace = 0; trace < traces; ++trace) {
        ask("FLUSHALL");
        late_.clear();
        workers_.clear();
        const auto count = any(1, 3);
        for (int i = 0; i < count; ++i) {
            add_worker();
        }
        for (int i = 0; i < 150; ++i) {
            step();
            ASSERT_LE(held(), policy.rate.quota) << "trace " << trace << ", step " << i;
        }
        for (const auto& of : workers_) {
            of->client.away = false;
        }
        settle();
        for (const auto& of : workers_) {
            for (const Held& request : of->requests) {
                ASSERT_NE(request.end, ShardPart::End::pending);
            }
            ASSERT_FALSE(of->loop.keeps_process());
        }
        ASSERT_EQ(remaining(), policy.rate.quota - held()) << "trace " << trace;
        for (const std::string& command : late_) {
            execute(command);
        }
        ASSERT_EQ(remaining(), policy.rate.quota - held()) << "trace " << trace << ", late";
        for (const auto& of : workers_) {
            of->requests.clear();
        }
        settle();
        if (any(0, 1) == 0) {
            virtual_now += 460ms;  // the time of the key has passed
        }
        for (const std::string& command : late_) {
            execute(command);
        }
        ASSERT_EQ(remaining(), policy.rate.quota) << "trace " << trace << ", at the end";
    }
}

void HoldingTrace::end_any(Worker& of, int step)
{
    Held& ending = *std::next(of.requests.begin(), any(0, std::ssize(of.requests) - 1));
    if (ending.end == ShardPart::End::pending) {
        return;
    }
    for (Seen& seen : seen_) {
        if (seen.request == &ending) {
            seen.request = nullptr;
            seen.ended = step;
        }
    }
    end(ending);
}

std::int64_t HoldingTrace::cause(const Seen& judged) const
{
    std::int64_t units = judged.units;
    for (const Seen& other : seen_) {
        // A worker states what its requests hold now, so only those of others are late.
        const bool over = other.over < judged.begun
            || (other.worker == judged.worker && other.ended < judged.begun);
        units += &other == &judged || over ? 0 : other.units;
    }
    return units;
}

TEST_F(HoldingTrace, a_refusal_has_its_cause)
{
    for (std::int64_t trace = 0; trace < from_environment("TRACE_STEPS", 60'000) / 300; ++trace) {
        ask("FLUSHALL");
        workers_.clear();
        seen_.clear();
        add_worker();
        add_worker();
        for (int step = 0; step < 200; ++step) {
            Worker& of = worker(static_cast<std::size_t>(any(0, 1)));
            const auto what = any(0, 9);
            if (what < 3) {
                const std::string other = any(0, 2) == 0 ? "{k}" + std::to_string(any(0, 2)) : "";
                const auto units = any(1, 2);
                seen_.push_back({ &request(of, units, other), &of, units, step });
            } else if (what < 5 && !of.requests.empty()) {
                end_any(of, step);
            } else if (!of.client.messages.empty()) {
                answer(
                    of,
                    std::next(
                        of.client.messages.begin(), any(0, std::ssize(of.client.messages) - 1)));
            }
            for (Seen& seen : seen_) {
                if (seen.ended != never && seen.worker->client.messages.empty()) {
                    seen.over = std::min(seen.over, step);
                }
            }
            for (Seen& seen : seen_) {
                const Held* const request = seen.request;
                if (request != nullptr && !seen.judged && request->end != ShardPart::End::pending) {
                    seen.judged = true;
                    ASSERT_TRUE(request->units() > 0 || cause(seen) > policy.rate.quota)
                        << "trace " << trace << ", step " << step;
                }
            }
        }
    }
}

}  // namespace
}  // namespace ratelimit

#include "fleet/leave.h"

#include "fleet/poll_loop.h"
#include "redis/call.h"
#include "redis/command.h"
#include "redis/make_client.h"

#include "lua_scripts.h"

#include <algorithm>
#include <optional>
#include <string>

#include <hiredis/hiredis.h>

namespace ratelimit::fleet {

namespace {

class LeaveCall final : public redis::Call {
public:
    LeaveCall(redis::ScriptId script, const FleetKeys& keys, std::string_view id)
        : script_(script), keys_(keys), id_(id)
    {
        repeatable = true;
    }

    std::string_view routing_key() const noexcept override { return keys_.state; }
    void write(redis::CommandBuffer& command) const override
    {
        command.begin_script(script_, { 1, 1 });
        command.key(keys_.nodes);
        command.arg(id_);
    }
    bool on_reply(const redisReply& reply) noexcept override
    {
        running = false;
        answered = reply.type == REDIS_REPLY_INTEGER;
        return answered;
    }
    /// An error is an answer, too: the same call would have it again.
    void ended(redis::Fate fate) noexcept override
    {
        running = false;
        refused = fate == redis::Fate::refused || fate == redis::Fate::failed;
    }

    bool running = false;
    bool answered = false;
    bool refused = false;

private:
    const redis::ScriptId script_;
    const FleetKeys& keys_;
    const std::string_view id_;
};

}  // namespace

bool leave_fleet(std::string_view id, const redis::ClientOptions& options, const FleetKeys& keys)
{
    PollLoop loop;
    redis::ScriptRegistry scripts;
    LeaveCall call(scripts.add(std::string(lua::fleet_leave)), keys, id);
    redis::ClientEvents events;
    const auto client = redis::make_client({ loop, options, scripts, events });
    client->start();
    const milliseconds end = loop.now() + std::min(client->longest_wait(), longest_hold_up);
    while (!call.answered && !call.refused && loop.now() < end) {
        if (!call.running) {
            call.routing = {};
            call.running = client->send(call);
        }
        loop.run_until(
            [&call] { return call.answered || call.refused; },
            std::min(end, loop.now() + between_tries));
    }
    client->close();
    return call.answered;
}

}  // namespace ratelimit::fleet

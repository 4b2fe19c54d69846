#include "redis/silent_pipelines.h"

#include "redis/batcher.h"
#include "redis/error_table.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

bool SilentPipelines::keep(const std::shared_ptr<Pipeline>& pipeline) noexcept
try {
    if (!pipeline->calls().wants_late_replies()) {
        return false;
    }
    const milliseconds since = pipeline->calls().silent_since();
    all_.push_back({ pipeline, since });
    pipeline->silent_at(since + longest);
    if (all_.size() > most) {
        close(*all_.front().pipeline);
    }
    return true;
} catch (const std::exception&) {
    return false;
}

void SilentPipelines::replied(Pipeline& pipeline, const redisReply& reply) noexcept
{
    InFlight::Command command = pipeline.take_oldest();
    if (reply.type == REDIS_REPLY_ERROR) {
        const std::string_view error{ reply.str, reply.len };
        const Fate fate = rule_of(error_text(error)).fate();
        release_all(command.calls, [fate](Call& call, bool) noexcept { call.ended(fate); });
    } else {
        const Exchange exchange{ nullptr, command.sent, ServerClock::steady_now() };
        deliver_all(command.calls, reply, exchange, [](Call& call) { call.ended(Fate::failed); });
    }
    if (pipeline.calls().empty()) {
        close(pipeline);
    }
}

void SilentPipelines::server_replied() noexcept
{
    const milliseconds now = loop_.now();
    for (const Silent& each : all_) {
        const milliseconds again = now + (now - each.since) + first_pause;
        each.pipeline->silent_at(std::min(again, each.since + longest));
    }
}

void SilentPipelines::close(Pipeline& pipeline) noexcept
{
    const auto found =
        std::ranges::find(all_, &pipeline, [](const Silent& each) { return each.pipeline.get(); });
    if (found != all_.end()) {
        const auto held = std::move(found->pipeline);
        all_.erase(found);
        held->close();
    }
}

void SilentPipelines::close_all() noexcept
{
    for (const Silent& each : std::exchange(all_, {})) {
        each.pipeline->close();
    }
}

}  // namespace ratelimit::redis

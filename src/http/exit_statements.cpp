#include "http/exit_statements.h"

#include "check/ahead_units.h"
#include "fleet/poll_loop.h"
#include "nginx/guarded.h"
#include "nginx/text.h"
#include "redis/make_client.h"
#include "redis/no_events.h"

#include <algorithm>
#include <vector>

namespace ratelimit::http {

namespace {

/// False: Redis did not answer all statements, and reports of what passed ahead, in time.
bool state_none(RedisBlock& block, const std::vector<Holdings*>& all)
{
    fleet::PollLoop loop;
    redis::NoEvents events;
    const auto client = redis::make_client({ loop, block.options, block.scripts, events });
    const auto known = [&all] {
        return std::all_of(
            all.begin(), all.end(), [](Holdings* holdings) { return holdings->all_known(); });
    };
    client->start();
    redis::Client* const stopped = block.started_client();
    const milliseconds end = loop.now() + client->longest_wait();
    AheadUnits& ahead = block.ahead_units();
    const auto settled = [&] {
        return known() && ahead.idle() && client->outbox().empty()
            && (stopped == nullptr || stopped->outbox().empty());
    };
    while (!settled() && loop.now() < end) {
        if (stopped != nullptr) {
            client->outbox().take(stopped->outbox());  // an answered report may refund something
        }
        ahead.send_rest(*client);
        for (Holdings* holdings : all) {
            holdings->state_none(*client);
        }
        loop.run_until(settled, std::min(end, loop.now() + fleet::between_tries));
    }
    const bool done = settled();
    client->close();
    return done;
}

}  // namespace

void state_at_exit(MainConf& conf, ngx_log_t& log) noexcept
{
    for (RedisBlock& block : conf.redis) {
        nginx::guarded(&log, [&] {
            std::vector<Holdings*> all;
            for (const ZoneConf& zone : conf.zones) {
                Holdings* holdings = zone.held == nullptr ? nullptr : zone.held->in_redis();
                if (zone.redis == &block && holdings != nullptr && !holdings->all_known()) {
                    all.push_back(holdings);
                }
            }
            redis::Client* const client = block.started_client();
            const bool any = !all.empty()
                || (client != nullptr
                    && (!client->outbox().empty() || !block.ahead_units().idle()));
            if (any && !state_none(block, all)) {
                const ngx_str_t name = nginx::borrowed(block.name);
                ngx_log_error(
                    NGX_LOG_WARN, &log, 0,
                    "ratelimit: redis \"%V\" did not answer when a worker exited: what its "
                    "requests held of zones with concurrency= is free after hold, what passed "
                    "ahead (ahead=) may not be counted, and refunds are lost",
                    &name);
            }
        });
    }
}

}  // namespace ratelimit::http

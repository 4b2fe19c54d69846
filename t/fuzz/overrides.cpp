// Overrides: changes from the API, and what Redis has in the fleet's keys.

#include "fuzz.h"

#include "fleet/fleet_keys.h"
#include "fleet/override_text.h"
#include "fleet/sync_reply.h"
#include "limit/rate_text.h"

#include <hiredis/hiredis.h>

using namespace ratelimit;

namespace {

void check(const Override& value)
{
    using Kind = Override::Kind;
    must(value.end.count() >= 0);
    if (value.kind == Kind::rate) {
        must(value.rate.quota >= 1 && value.rate.quota <= max_quota);
        must(value.rate.window >= std::chrono::seconds{ 1 } && value.rate.window <= max_window);
        must(value.burst.value_or(0) >= 0 && value.burst.value_or(0) <= max_quota);
    }
    if (value.kind == Kind::concurrency) {
        must(value.rate.quota >= 1 && value.rate.quota <= max_quota);
    }
    for (std::size_t i = 0; i < algorithm_count; ++i) {
        Policy policy{ static_cast<Algorithm>(i), { 5, std::chrono::minutes{ 1 } }, {}, {} };
        const bool fits = misfit(value, policy).empty();
        apply(value, policy);
        must(policy.possible() || !fits);
        must(policy.limit() >= 1);
    }
}

/// What a change stores is read as the same override.
void check_change(std::string_view text)
{
    fleet::OverrideChange change;
    const std::string error = fleet::parse_change(text, change);
    if (!error.empty()) {
        must(error.find('\n') == std::string::npos && error.size() < 600);
        return;
    }
    check(change.value);
    must(change.time.lasts.count() >= 0 && change.time.until.count() >= 0);
    const auto stored = fleet::parse_stored(fleet::begin_stored(change, text) + ",\"at\":7}");
    must(stored.value == change.value && stored.at.count() == 7);
    must(stored.rate_text == change.rate_text);
}

void check_id(std::string_view text)
{
    if (const auto id = fleet::parse_change_id(text)) {
        must(id->text() == text && !id->zone.empty() && id->key.size() <= fleet::longest_key);
        must((id->kind == fleet::ChangeId::Kind::zone_override) == id->key.empty());
    }
}

void check_reply(const redisReply& reply)
{
    const auto parsed = fleet::SyncReply::parse(reply);
    if (!parsed) {
        return;
    }
    for (std::size_t i = 0; i < parsed->size(); ++i) {
        if (const auto change = parsed->change(i)) {
            check_id(change->id);
            check(fleet::parse_stored(change->text).value);
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const auto text = text_of(data, size);
    check_change(text);
    check(fleet::parse_stored(text).value);
    check_id(text);

    redisReader* reader = redisReaderCreate();
    reader->maxelements = 65'536;  // as in the client
    redisReaderFeed(reader, text.data(), size);
    void* reply = nullptr;
    while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply != nullptr) {
        check_reply(*static_cast<const redisReply*>(reply));
        freeReplyObject(reply);
        reply = nullptr;
    }
    redisReaderFree(reader);
    return 0;
}

#include "fleet/change_call.h"

#include "fleet/nodes_call.h"
#include "redis/reply_text.h"

#include "lua_scripts.h"

#include <array>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit::fleet {

namespace {

constexpr std::array<std::string_view, 3> change_names = { "set", "remove", "free" };

}  // namespace

ApiScripts ApiScripts::add_to(redis::ScriptRegistry& scripts)
{
    return { scripts.add(std::string(lua::fleet_change)), scripts.add(std::string(lua::fleet_list)),
             add_nodes_script(scripts) };
}

ChangeCall::ChangeCall(
    redis::ScriptId script, const FleetKeys& keys, Change change, std::string id, std::string text,
    OverrideTime time, std::string condition)
    : script_(script),
      keys_(keys),
      change_(change),
      id_(std::move(id)),
      text_(std::move(text)),
      time_(time),
      condition_(std::move(condition))
{
    repeatable = change == Change::free;
}

void ChangeCall::write(redis::CommandBuffer& command) const
{
    keys_.begin_script(script_, 7, command);
    command.arg(change_names[static_cast<std::size_t>(change_)]);
    command.arg(std::string_view(id_));
    command.arg(std::string_view(text_));
    command.arg(time_.lasts.count());
    command.arg(most);
    command.arg(std::string_view(condition_));
    command.arg(time_.until.count());
}

bool ChangeCall::on_reply(const redisReply& reply) noexcept
{
    if (reply.type == REDIS_REPLY_INTEGER && reply.integer < 0) {
        if (condition_.empty()) {
            return false;  // the script does not answer so
        }
        outdated();
        return true;
    }
    if (change_ == Change::set) {
        if (reply.type != REDIS_REPLY_STRING) {
            return false;
        }
        changed(reply.len > 0, redis::text_of(reply));
        return true;
    }
    if (reply.type != REDIS_REPLY_INTEGER) {
        return false;
    }
    changed(reply.integer != 0, {});
    return true;
}

LookupCall::LookupCall(const FleetKeys& keys, std::string_view id)
    : CommandCall(redis::plain_command({ "HGET", keys.overrides, id }), keys.overrides)
{
    repeatable = true;
}

bool LookupCall::on_reply(const redisReply& reply) noexcept
{
    if (reply.type != REDIS_REPLY_STRING && reply.type != REDIS_REPLY_NIL) {
        return false;
    }
    found(reply.type == REDIS_REPLY_STRING ? redis::text_of(reply) : std::string_view{});
    return true;
}

ListCall::ListCall(
    redis::ScriptId script, const FleetKeys& keys, std::string zone, std::int64_t after,
    std::int64_t most)
    : script_(script), keys_(keys), zone_(std::move(zone)), after_(after), most_(most)
{
    repeatable = true;
}

void ListCall::write(redis::CommandBuffer& command) const
{
    command.begin_script(script_, { 2, 3 });
    command.key(keys_.changes);
    command.key(keys_.overrides);
    command.arg(std::string_view(zone_));
    command.arg(after_);
    command.arg(most_);
}

bool ListCall::on_reply(const redisReply& reply) noexcept
try {
    constexpr std::size_t head = 2;
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements < head || reply.elements % 2 != 0
        || reply.element[0]->type != REDIS_REPLY_INTEGER
        || reply.element[1]->type != REDIS_REPLY_INTEGER) {
        return false;
    }
    OverridePage page;
    page.now = milliseconds{ reply.element[0]->integer };
    page.next = reply.element[1]->integer;
    for (std::size_t i = head; i < reply.elements; i += 2) {
        if (reply.element[i]->type != REDIS_REPLY_STRING
            || reply.element[i + 1]->type != REDIS_REPLY_STRING) {
            return false;
        }
        if (const auto id = parse_change_id(redis::text_of(*reply.element[i]))) {
            page.items.push_back({ std::string(id->zone), std::string(id->key),
                                   parse_stored(redis::text_of(*reply.element[i + 1])) });
        }
    }
    listed(std::move(page));
    return true;
} catch (const std::exception&) {
    return false;  // out of memory
}

}  // namespace ratelimit::fleet

#include "redis/handshake.h"

#include "redis/command.h"
#include "redis/reply_text.h"

#include <hiredis/hiredis.h>
#include <unistd.h>

namespace ratelimit::redis {

namespace {

bool names_a_master(const redisReply& role) noexcept
{
    return role.elements != 0 && role.element[0]->type == REDIS_REPLY_STRING
        && text_of(*role.element[0]) == "master";
}

}  // namespace

Handshake::Handshake(const ServerOptions& options, bool calls_scripts, ServerClock& clock)
    : options_(options), calls_scripts_(calls_scripts), clock_(clock)
{
}

std::vector<std::string> Handshake::begin()
{
    reset();
    began_ = ServerClock::steady_now();
    std::vector<std::string> commands;
    const auto add = [&](Reply reply, std::string_view name, std::string command) {
        awaited_.push_back({ reply, name });
        commands.push_back(std::move(command));
    };
    if (!options_.password.empty()) {
        add(Reply::good, "AUTH", auth_command(options_.username, options_.password.text()));
    }
    if (options_.database != 0) {
        add(Reply::good, "SELECT", plain_command({ "SELECT", std::to_string(options_.database) }));
    }
    if (options_.master_only) {
        add(Reply::role, "ROLE", plain_command({ "ROLE" }));
    }
    // Also proves that the server answers, and whether the user may call scripts, and the server
    // executes them now: the plain TIME has a reply even while Redis loads its data (LOADING).
    if (calls_scripts_) {
        add(Reply::time, "EVAL", time_command(options_.clock_key));
    } else {
        add(Reply::time, "TIME", plain_command({ "TIME" }));
    }
    // CLIENT LIST then shows which worker has the connection. A server may refuse this command. It
    // is last: a server that refuses the connection (DENIED, max number of clients) gives its
    // reason in the first reply, which has to count.
    if (names_itself_) {
        const std::string name = "nginx-ratelimit-" + std::to_string(getpid());
        add(Reply::any, "CLIENT SETNAME", plain_command({ "CLIENT", "SETNAME", name }));
    }
    return commands;
}

std::optional<std::string_view> Handshake::judge(const redisReply& reply)
{
    const Reply expected = awaited_.front().reply;
    awaited_.pop_front();
    if (expected == Reply::any) {
        return std::nullopt;
    }
    if (reply.type == REDIS_REPLY_ERROR) {
        return text_of(reply);
    }
    if (expected == Reply::time && !clock_.set(reply, began_)) {
        return "TIME returned no time";
    }
    if (expected == Reply::role && reply.type == REDIS_REPLY_ARRAY && !names_a_master(reply)) {
        return "it is not a master";
    }
    return std::nullopt;
}

std::string Handshake::closed(std::string_view reason) const noexcept
try {
    return std::string(reason) + " at " + std::string(awaited());
} catch (const std::exception&) {
    return {};  // out of memory
}

}  // namespace ratelimit::redis

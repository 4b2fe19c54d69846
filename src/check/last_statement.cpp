#include "check/last_statement.h"

#include "check/script_reply.h"

#include <algorithm>

namespace ratelimit {

void write_statement(
    const Policy& policy, const StatementSource& source, redis::ScriptArguments& arguments)
{
    LimitCheck check;
    check.policy = policy;
    check.states = &source;
    write_sequence_numbers(check, 0, arguments);
}

void LastStatement::send(redis::Client& client) noexcept
{
    routing = {};
    ++statement_.number;
    client.try_send(*this);
}

void LastStatement::write_numbers(redis::ScriptArguments& arguments) const
{
    write_statement(policy_, *this, arguments);
}

bool LastStatement::on_part(std::string_view part) noexcept
{
    KeyReply reply;
    answered_ = read_sequence_reply(part, reply);
    return answered_;
}

void LastStatements::send(redis::Client& client, std::size_t most) noexcept
{
    std::size_t pending = 0;
    for (auto each = all_.begin(); each != all_.end() && pending < most; ++each) {
        if (!each->answered() && !each->pending()) {
            each->send(client);
        }
        pending += each->pending() ? 1 : 0;
    }
}

bool LastStatements::all_answered() const noexcept
{
    return std::all_of(
        all_.begin(), all_.end(), [](const LastStatement& each) { return each.answered(); });
}

}  // namespace ratelimit

#include "check/last_statement.h"

#include "check/script_reply.h"

namespace ratelimit {

void write_statement(
    const Policy& policy, StatementSource& source, redis::ScriptArguments& arguments)
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
    write_statement(policy_, const_cast<LastStatement&>(*this), arguments);
}

bool LastStatement::on_part(std::string_view part) noexcept
{
    SequenceReply reply;
    answered_ = read_sequence_reply(part, reply);
    return answered_;
}

}  // namespace ratelimit

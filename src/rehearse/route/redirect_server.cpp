#include "rehearse/route/redirect_server.h"

#include "rehearse/route/request_facts.h"

#include <algorithm>

namespace ratelimit::rehearse {

bool RedirectServer::is_doubtful(const RequestFacts& facts) const noexcept
{
    return directive != nullptr && !(by_scheme && facts.scheme != nullptr);
}

bool RedirectServer::answered(Values& values, const RequestFacts& facts) const
{
    if (directive == nullptr) {
        return false;
    }
    if (!is_doubtful(facts)) {
        return facts.scheme->value(values) == "http";
    }
    const int status = facts.status_of(values);
    const bool fits =
        status == 0 || std::find(statuses.begin(), statuses.end(), status) != statuses.end();
    return fits && !facts.asked_upstream(values) && values.in_doubt(directive, "", status != 0);
}

}  // namespace ratelimit::rehearse

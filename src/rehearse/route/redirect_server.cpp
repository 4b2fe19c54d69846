#include "rehearse/route/redirect_server.h"

#include "rehearse/route/request_facts.h"

#include <algorithm>

namespace ratelimit::rehearse {

bool RedirectServer::answered(Values& values, const RequestFacts& facts) const
{
    if (directive == nullptr) {
        return false;
    }
    if (by_scheme && facts.scheme != nullptr) {
        return facts.scheme->value(values) == "http";
    }
    return std::find(statuses.begin(), statuses.end(), facts.status_of(values)) != statuses.end()
        && !facts.asked_upstream(values);
}

std::string RedirectServer::warning(const Place& other, const RequestFacts& facts) const
{
    if (directive == nullptr || (by_scheme && facts.scheme != nullptr)) {
        return {};
    }
    std::string text =
        "the server in " + directive->place.text() + " redirects to that in " + other.text();
    text += facts.status == nullptr
        ? ", and the log has no $status to tell which requests it answered"
        : ": requests with the status of its redirect are taken for those that it answered";
    return text + (by_scheme ? " (log $scheme to know)" : "");
}

}  // namespace ratelimit::rehearse

#include "redis/sentinel_client.h"

#include "base/random.h"
#include "redis/error_table.h"

#include <algorithm>
#include <utility>

namespace ratelimit::redis {

SentinelClient::SentinelClient(ClientParts parts)
    : Client(std::move(parts)),
      master_options_(options_.server),
      sentinel_options_(options_.server),
      retired_(loop_, options_.server),
      sentinels_(loop_, endpoints_of(options_)),
      tries_(
          loop_, [this](std::size_t candidate) { return try_candidate(candidate); },
          [this] { exhausted(); }),
      look_up_timer_(loop_.make_timer([this] { look_up(); })),
      // At random, so that the workers of a fleet are not all subscribed to the same sentinel.
      first_(random_number())
{
    master_options_.master_only = true;
    sentinel_options_.username = options_.sentinel_username;
    sentinel_options_.password = options_.sentinel_password;
}

void SentinelClient::disconnect() noexcept
{
    look_up_timer_->stop();
    tries_.end();
    for (const auto& link : tried_) {
        link->close();
    }
    if (link_ != nullptr) {
        link_->close();
    }
    retired_.close();
}

bool SentinelClient::route(Call& call)
{
    if (master_ == nullptr) {
        if (!tries_.running()) {
            return false;
        }
        waiting_.add(call);
        return true;
    }
    // A call must not wait for a connection to a master that is away: it would miss the takeover.
    const bool usable = master_->ready() || !master_->away();
    return (usable && master_->send(call)) || wait(call, takeover_);
}

void SentinelClient::each_server(const std::function<void(Server&)>& visit)
{
    if (master_ != nullptr) {
        visit(*master_);
    }
}

ErrorClass SentinelClient::classify_error(
    Server& server, Call* call, std::string_view error) noexcept
{
    if (rule_of(error).sentinel != Next::wait || !open()) {
        return ErrorClass::refused;
    }
    if (&server == master_.get()) {
        doubted_ = true;
        want_master();
        if (errors_.add(error, loop_.now())) {
            error_reply(server, error);
        }
        return call != nullptr && wait(*call, takeover_) ? ErrorClass::redirected
                                                         : ErrorClass::unreachable;
    }
    return call != nullptr && reroute(*call) ? ErrorClass::redirected : ErrorClass::unreachable;
}

void SentinelClient::want_master() noexcept
{
    if (!tries_.running() && open() && !look_up_timer_->running()) {
        look_up_timer_->start(look_up_pause);
    }
}

void SentinelClient::look_up() noexcept
try {
    tried_.clear();
    if (up() && !doubted_ && link_ != nullptr && link_->open()) {
        return;  // nothing has to be looked up any more
    }
    reason_.clear();
    candidates_ = sentinels_.candidates();
    const auto turn = static_cast<std::ptrdiff_t>(++first_ % candidates_.size());
    std::rotate(candidates_.begin(), candidates_.begin() + turn, candidates_.end());
    tries_.begin(candidates_.size());
} catch (const std::exception&) {
    want_master();  // out of memory
}

bool SentinelClient::try_candidate(std::size_t candidate) noexcept
try {
    SentinelLink& link = *tried_.emplace_back(std::make_unique<SentinelLink>(
        loop_, candidates_[candidate], sentinel_options_, options_.master, *this));
    link.start();
    return true;
} catch (const std::exception&) {
    return false;
}

void SentinelClient::link_lost(SentinelLink& link, std::string_view reason) noexcept
try {
    if (!open()) {
        return;
    }
    if (&link == link_.get()) {
        want_master();
        return;
    }
    reason_ = reason;
    tries_.failed();
} catch (const std::exception&) {
    tries_.failed();  // out of memory: only the reason is missing
}

/// No sentinel has named the master.
void SentinelClient::exhausted() noexcept
{
    sentinels_.look_up();
    servers_unknown(reason_);
    want_master();
}

/// Keeps the link, which was the first to name the master, and drops the others.
void SentinelClient::listen_to(SentinelLink& link) noexcept
{
    if (&link == link_.get()) {
        return;
    }
    tries_.end();
    for (auto& tried : tried_) {
        if (tried.get() == &link) {
            std::swap(tried, link_);
        }
    }
    std::erase(tried_, nullptr);
    for (const auto& tried : tried_) {
        tried->close();
    }
}

void SentinelClient::master_is(SentinelLink& link, const Endpoint& master) noexcept
try {
    listen_to(link);
    // A sentinel that names one master after another would take all connections.
    doubted_ = retired_.size() >= most_retired;
    if (doubted_) {
        want_master();
        return;
    }
    servers_known("master " + options_.master + " is at " + master.name);
    if (master_ == nullptr || master_->endpoint().name != master.name) {
        use_master(master);
    }
    if (!up()) {
        want_master();  // the sentinel's information may be old
    }
} catch (const std::exception&) {
    want_master();  // out of memory
}

void SentinelClient::use_master(const Endpoint& master)
{
    const bool replaced = master_ != nullptr;
    auto next = std::make_unique<Server>(loop_, master, master_options_, scripts_, *this);
    if (replaced) {
        next->clock().takes_over_from(master_->clock());
        master_->replaced();
    }
    retired_.add(std::exchange(master_, std::move(next)));
    master_->start();
    if (replaced) {
        counts_may_be_lost(0);
    }
    retry_waiting();
}

}  // namespace ratelimit::redis

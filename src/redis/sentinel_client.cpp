#include "redis/sentinel_client.h"

#include <algorithm>
#include <random>
#include <utility>

namespace ratelimit::redis {

SentinelClient::SentinelClient(const RouterParts& parts)
    : Router(parts),
      master_options_(options_.server),
      sentinel_options_(options_.server),
      waiting_(loop_, records_, [](unsigned) {}),
      retired_(loop_, options_.server),
      sentinels_(loop_, endpoints_of(options_)),
      link_(loop_, sentinel_options_, options_.master, *this),
      look_up_timer_(loop_.make_timer([this] { look_up(); })),
      // Not all workers of a fleet listen to the first one.
      next_sentinel_(std::random_device{}() % options_.servers.size())
{
    master_options_.master_only = true;
    sentinel_options_.username = options_.sentinel_username;
    sentinel_options_.password = options_.sentinel_password;
    look_up_timer_->on_exit(Timer::OnExit::ignore);
}

SentinelClient::~SentinelClient()
{
    close();
}

void SentinelClient::start()
{
    look_up();
}

bool SentinelClient::send(Call& call)
{
    if (master_ == nullptr) {
        if (!looking_up_) {
            return false;
        }
        waiting_.add(call, call.travel.expires);
        return true;
    }
    return master_->send(call);
}

bool SentinelClient::refuses(std::string_view) const noexcept
{
    return master_ != nullptr && master_->refuses();
}

void SentinelClient::each_server(const std::function<void(Server&)>& visit)
{
    if (master_ != nullptr) {
        visit(*master_);
    }
}

void SentinelClient::close() noexcept
{
    closed_ = true;
    look_up_timer_->stop();
    link_.close();
    if (master_ != nullptr) {
        master_->close();
    }
    retired_.close();
    waiting_.fail_all(Failure::connection);
}

std::uint32_t SentinelClient::place_of(std::string_view) const noexcept
{
    return 0;
}

void SentinelClient::server_up(Server& server) noexcept
{
    if (&server == master_.get()) {
        up_ = true;
        Router::server_up(server);
    }
}

void SentinelClient::server_down(Server& server, std::string_view reason) noexcept
{
    if (&server == master_.get()) {
        up_ = false;
        Router::server_down(server, reason);
        want_master();
    }
}

ErrorFate SentinelClient::fate_of(Server& server, Call*, std::string_view error) noexcept
{
    if (&server == master_.get() && error.starts_with("READONLY")) {
        doubted_ = true;
        want_master();
    }
    return ErrorFate::refused;
}

void SentinelClient::want_master() noexcept
{
    if (!looking_up_ && !closed_ && !look_up_timer_->running()) {
        look_up_timer_->start(pause_);
    }
}

void SentinelClient::look_up() noexcept
{
    if (up_ && !doubted_ && link_.is_open()) {
        return;  // all is well again
    }
    looking_up_ = true;
    left_to_ask_ = sentinels_.endpoints().size();
    open_next();
}

void SentinelClient::open_next() noexcept
{
    --left_to_ask_;
    next_sentinel_ = (next_sentinel_ + 1) % sentinels_.endpoints().size();
    link_.open(sentinels_.endpoints()[next_sentinel_]);
}

void SentinelClient::link_lost(std::string_view reason) noexcept
{
    if (closed_) {
        return;
    }
    if (looking_up_ && left_to_ask_ > 0) {
        open_next();
        return;
    }
    const bool asked_all = std::exchange(looking_up_, false);
    waiting_.fail_all(Failure::connection);
    look_sentinels_up();
    if (asked_all && !std::exchange(unknown_told_, true)) {
        events_.servers_unknown(reason);
    }
    if (asked_all) {
        pause_ = std::min(pause_ * 2, longest_pause);
    }
    want_master();
}

void SentinelClient::look_sentinels_up() noexcept
try {
    sentinels_.look_up();
} catch (const std::exception&) {
    // Out of memory: they are looked up when they are lost again.
}

void SentinelClient::master_is(const Endpoint& master) noexcept
try {
    looking_up_ = false;
    doubted_ = false;
    pause_ = look_up_pause;
    const bool was_unknown = std::exchange(unknown_told_, false);
    if (master_ == nullptr || master_->endpoint().name != master.name) {
        use_master(master);
    } else if (was_unknown) {
        tell_master();
    }
    if (!up_) {
        want_master();  // what this sentinel says may be old
    }
} catch (const std::exception&) {
    want_master();  // out of memory
}

void SentinelClient::use_master(const Endpoint& master)
{
    up_ = false;
    retired_.add(std::move(master_));
    master_ = std::make_unique<Server>(loop_, master, master_options_, scripts_, *this);
    master_->start();
    tell_master();
    waiting_.release([this](Call& call) { return send(call); });
}

void SentinelClient::tell_master()
{
    events_.servers_known("master " + options_.master + " is at " + master_->endpoint().name);
}

}  // namespace ratelimit::redis

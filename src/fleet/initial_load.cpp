#include "fleet/initial_load.h"

#include "fleet/poll_loop.h"
#include "fleet/sync.h"
#include "redis/make_client.h"

#include <csignal>

namespace ratelimit::fleet {

namespace {

/// hiredis and OpenSSL write to sockets that the other side may have closed. nginx ignores the
/// signal only later.
class WithoutSigpipe {
public:
    WithoutSigpipe() noexcept { sigaction(SIGPIPE, &ignore_, &before_); }
    ~WithoutSigpipe() { sigaction(SIGPIPE, &before_, nullptr); }
    WithoutSigpipe(const WithoutSigpipe&) = delete;
    WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

private:
    static struct sigaction ignoring() noexcept
    {
        struct sigaction action {};
        action.sa_handler = SIG_IGN;
        return action;
    }

    const struct sigaction ignore_ = ignoring();
    struct sigaction before_ {};
};

/// Keeps the reason of a failure.
class Reasons final : public redis::ClientEvents {
public:
    void server_down(const redis::Endpoint& server, std::string_view reason) noexcept override
    {
        set(server, reason);
    }
    void error_reply(const redis::Endpoint& server, std::string_view text) noexcept override
    {
        set(server, text);
    }
    void servers_unknown(std::string_view reason) noexcept override
    {
        try {
            last = reason;
        } catch (const std::exception&) {
            last.clear();
        }
    }

    std::string last = "no answer in time";

private:
    void set(const redis::Endpoint& server, std::string_view reason) noexcept
    {
        try {
            last = server.name + ": " + std::string(reason);
        } catch (const std::exception&) {
            last.clear();
        }
    }
};

class Loading final : public Sync::Owner, public ChangeListener {
public:
    void freed(std::string_view, std::string_view) noexcept override {}
    void changed(std::string_view, std::string_view) noexcept override {}
    void synced(Sync::End end) noexcept override
    {
        known = end == Sync::End::known;
        part = end == Sync::End::part;
    }

    bool known = false;
    bool part = false;
};

}  // namespace

std::string load_overrides(
    const FleetMemory& memory, const redis::ClientOptions& options, const FleetKeys& keys,
    const NodeClock& clock, std::uint64_t storage)
{
    const WithoutSigpipe guard;
    PollLoop loop;
    redis::ScriptRegistry scripts;
    const redis::ScriptId script = add_sync_script(scripts);
    Reasons reasons;
    const auto client = redis::make_client({ loop, options, scripts, reasons });
    Loading loading;
    Sync sync({ memory, *client, script, keys, clock, loading, storage }, loading);
    const auto writable = [&] { return known_of(memory, storage).has_value(); };
    writable();  // so that heard_us is of this Redis
    const std::int64_t heard = memory.shared().heard_us.load();

    client->start();
    const milliseconds begun = loop.now();
    const milliseconds first = begun + std::min(client->longest_wait(), longest_hold_up);
    while (!loading.known) {
        const bool answered = memory.shared().heard_us.load() != heard;
        const milliseconds end = answered ? begun + longest_hold_up : first;
        if (loop.now() >= end) {
            client->close();
            return writable() ? reasons.last : "a worker that is stopped holds their lock";
        }
        if (!sync.running()) {
            loading.part = false;
            sync.start({});
        }
        const milliseconds next = std::min(end, loop.now() + between_tries);
        loop.run_until([&loading] { return loading.known || loading.part; }, next);
    }
    client->close();
    return {};
}

}  // namespace ratelimit::fleet

#pragma once

#include "base/list.h"
#include "redis/alarm.h"
#include "redis/call.h"
#include "redis/send_window.h"
#include "redis/unsettled.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace ratelimit::redis {

class Client;
class Outbox;

/// The functions of the client that an outbox calls.
class OutboxOwner {
public:
    virtual ~OutboxOwner() = default;
    /// Client::send.
    virtual bool send(Call& call) noexcept = 0;
    /// A number for the shard's server, the same in each worker. In a cluster, two servers may have
    /// the same number.
    virtual std::uint32_t server_of(std::uint32_t shard) const noexcept = 0;
};

/// A message that is repeated until Redis has answered or it has lapsed. No request waits for the
/// answer. It has one key, and is always written as a part of a batch.
class Owed : public Call, protected BatchPart, public Link<Owed> {
public:
    enum class Rank : std::uint8_t {
        held,    // Redis must count it
        counts,  // Redis counts it, and should not; or the other way round
        known,   // Redis may know it
    };
    /// The terms that decide when it is sent.
    struct Terms {
        std::uint32_t shard;  // Client::shard_of its key
        std::size_t group;    // of Outbox::add_group
        Rank rank;            // a process that leaves waits for the first two
        milliseconds began;   // by the loop's clock: when Redis's count began to be wrong
    };

    ~Owed() override;

    BatchPart* batch_part() noexcept final { return this; }
    void write(CommandBuffer&) const final {}
    void write_keys(ScriptArguments& arguments) const final { arguments.key(routing_key()); }
    bool on_reply(const redisReply&) noexcept final { return false; }
    bool on_part(ReplyPart part) noexcept final;
    void ended(Fate fate) noexcept final;
    void overdue(PendingCall& reply) noexcept final;

protected:
    Owed() noexcept { delays_exit = false; }  // Outbox does

    /// Of the outbox that it joined last.
    Client& client() const noexcept;  // client.h defines it
    Outbox& outbox() const noexcept { return *outbox_; }
    /// It will be owed in this outbox.
    void join(Outbox& outbox) noexcept { outbox_ = &outbox; }

private:
    friend class Outbox;

    virtual Terms terms() const noexcept = 0;
    /// By the loop's clock: the first to lapse is sent first.
    virtual milliseconds lapses() const noexcept = 0;
    /// It waits, and could be sent. True: it need not be sent any longer, and has left the outbox.
    virtual bool lapsed() noexcept { return false; }
    /// It is sent now.
    virtual void begin_sending() noexcept {}
    /// Each of these three must end with Outbox::keep or settled, or send it again. As on_part.
    virtual bool on_answer(ReplyPart part) noexcept = 0;
    virtual void on_failure(Fate fate) noexcept = 0;
    /// As Call::overdue.
    virtual void on_timeout(PendingCall& /*reply*/) noexcept { on_failure(Fate::overdue); }
    /// The outbox ends: it is never sent.
    virtual void dropped() noexcept {}

    void leave_window(SendWindow::Ended how) noexcept;

    Outbox* outbox_ = nullptr;
    bool owed_ = false;             // it is in the outbox
    bool unsettled_ = false;        // counted in UnsettledKeys
    List<Owed>* list_ = nullptr;    // it waits there; null: it is in flight
    SendWindow* window_ = nullptr;  // it is in flight there
    milliseconds since_{ 0 };       // it waits since then
    milliseconds due_{ 0 };         // and until then
    milliseconds lapses_{ 0 };
};

/// The messages that one client owes to its servers. Each server has a queue, so that none waits
/// for another server that is slow. In a queue the lowest rank goes first, then the first to lapse,
/// then the longest waiting. As much is in flight as the server answers in time (SendWindow).
class Outbox {
public:
    Outbox(EventLoop& loop, OutboxOwner& client, UnsettledKeys& unsettled);
    ~Outbox();
    Outbox(const Outbox&) = delete;
    Outbox& operator=(const Outbox&) = delete;

    /// Messages of one group and rank lapse in the order in which they come.
    std::size_t add_group() noexcept { return groups_++; }
    static constexpr std::size_t settlements = 0;
    static constexpr std::size_t spared = 1;  // the statements that a key is spared
    bool empty() const noexcept { return count_ == 0; }

    /// Sends it at once, whatever waits. If the client does not accept it, it fails (Fate::unsent).
    void send(Owed& owed) noexcept { send(owed, nullptr); }
    /// From now on it waits for its turn, for `pause` at least, unless its server is up again
    /// earlier. It keeps its turn if it waits already.
    void keep(Owed& owed, milliseconds pause) noexcept;
    /// It is answered, given up, or need not be said. No effect if it is not in the outbox.
    void settled(Owed& owed) noexcept;

    /// Takes over all messages of an outbox whose client is closed. They are sent at once: no check
    /// waits behind them, and there is little time.
    void take(Outbox& other) noexcept;

    /// Shards have other servers.
    void servers_changed() noexcept;
    /// A server is up.
    void server_up() noexcept;
    /// A connection to this server was lost and made again, or another one has its keys.
    void restart(std::uint32_t server) noexcept;
    /// Calls `match` with the waiting messages of a group and rank, until it has removed one and
    /// returns true.
    template <class Match>
    void find(std::size_t group, Owed::Rank rank, const Match& match) noexcept
    {
        for (auto& [server, queue] : queues_) {
            const auto found = queue.waiting.find({ group, rank });
            if (found != queue.waiting.end() && found->second.find(match) != nullptr) {
                return;
            }
        }
    }

private:
    friend class Owed;

    struct Queue {
        SendWindow window;
        std::map<std::pair<std::size_t, Owed::Rank>, List<Owed>> waiting;  // by group and rank
        milliseconds restarted{ 0 };  // messages that waited then are due
    };

    List<Owed>& list_of(std::uint32_t server, const Owed::Terms& terms) noexcept;
    void add(Owed& owed, const Owed::Terms& terms) noexcept;
    void put(Owed& owed, List<Owed>& list) noexcept;
    void move_all() noexcept;
    static milliseconds due(const Queue& queue, const Owed& owed) noexcept;
    static Owed* next(Queue& queue, Owed::Rank rank, milliseconds now) noexcept;
    void send(Owed& owed, Queue* queue) noexcept;
    void send(Queue& queue) noexcept;
    void fire() noexcept;
    void watch() noexcept;
    void wake(milliseconds at) noexcept;

    EventLoop& loop_;
    OutboxOwner& client_;
    UnsettledKeys& unsettled_;
    std::map<std::uint32_t, Queue> queues_;  // by server; that of 0 always exists
    List<Owed> in_flight_;
    std::size_t groups_ = 2;
    std::size_t count_ = 0;
    bool firing_ = false;
    bool servers_changed_ = false;
    Alarm alarm_;  // UnsettledKeys keeps the process
};

}  // namespace ratelimit::redis

// The whole client, from requests to bytes on sockets: servers that reply anything, to a ring, a
// cluster and sentinels. Each request ends once and in time.
//
// Input: the topology (its first byte), then replies, each up to a byte 0xFE. Each command that a
// server gets takes the next one; its first byte says which bytes are sent:
//   N  none; C  the rest, and the connection is closed; another one: all of it
//   nothing, or no reply is left: what Redis would reply, as far as this file knows it

#include "fuzz.h"

#include "check/coalescer.h"
#include "check/holding.h"
#include "check/script_text.h"
#include "check/settlement.h"
#include "libevent_loop.h"
#include "redis/make_client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include <hiredis/hiredis.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace ratelimit;
using namespace std::chrono_literals;

namespace {

constexpr char end_of_reply = '\xFE';

/// `second`: of its words; `last`: one, too.
std::string usual_reply(const std::string& word, std::string_view second, std::string_view last)
{
    const bool script = word == "EVAL";
    const bool asks_time = script && second == "return redis.call('TIME')";
    const std::string name = asks_time ? "TIME" : script ? "EVALSHA" : word;
    if (name == "EVALSHA") {
        std::string numbers(48, '\0');  // granted, five remain; the same for each script
        numbers[7] = 1;
        numbers[15] = 5;
        return "$48\r\n" + numbers + "\r\n";
    }
    if (name == "TIME") {
        return "*2\r\n$10\r\n1700000000\r\n$1\r\n5\r\n";
    }
    if (name == "CLUSTER") {
        return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:6379\r\n";
    }
    if (name == "SENTINEL") {
        return "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n";
    }
    if (name == "ROLE") {
        return "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n";
    }
    if (name == "SUBSCRIBE") {
        return "*3\r\n$9\r\nsubscribe\r\n$" + std::to_string(last.size()) + "\r\n"
            + std::string(last) + "\r\n:1\r\n";
    }
    return "+OK\r\n";
}

/// The servers' ends of all connections.
class Servers {
public:
    void begin(std::string_view replies)
    {
        replies_ = replies;
        connections_.clear();
    }
    void add(int socket) { connections_.emplace_back(socket); }

    /// Replies to what has come.
    void serve()
    {
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            if (connections_[i].socket >= 0 && !serve(connections_[i])) {
                connections_[i].close();
            }
        }
    }

private:
    struct Connection {
        explicit Connection(int of) : socket(of), reader(redisReaderCreate(), redisReaderFree) {}
        ~Connection() { close(); }
        Connection(const Connection&) = delete;
        Connection& operator=(const Connection&) = delete;

        void close()
        {
            if (socket >= 0) {
                ::close(socket);
                socket = -1;
            }
        }

        int socket;
        std::unique_ptr<redisReader, decltype(&redisReaderFree)> reader;
    };

    std::string_view next_reply()
    {
        const auto end = replies_.find(end_of_reply);
        const auto reply = replies_.substr(0, end);
        replies_.remove_prefix(end == std::string_view::npos ? replies_.size() : end + 1);
        return reply;
    }

    bool serve(Connection& connection)
    {
        std::array<char, 65536> bytes;
        const auto got = recv(connection.socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got == 0) {
            return false;
        }
        if (got > 0) {
            redisReaderFeed(connection.reader.get(), bytes.data(), static_cast<std::size_t>(got));
        }
        void* parsed = nullptr;
        while (redisReaderGetReply(connection.reader.get(), &parsed) == REDIS_OK
               && parsed != nullptr) {
            const std::unique_ptr<redisReply, decltype(&freeReplyObject)> command(
                static_cast<redisReply*>(parsed), freeReplyObject);
            if (!reply_to(*command, connection.socket)) {
                return false;
            }
        }
        return true;
    }

    bool reply_to(const redisReply& command, int socket)
    {
        must(command.type == REDIS_REPLY_ARRAY && command.elements > 0);
        std::string_view reply = next_reply();
        std::string usual;
        if (reply.empty()) {
            const auto word = [&](std::size_t i) {
                const redisReply& text = *command.element[std::min(i, command.elements - 1)];
                return std::string_view{ text.str, text.len };
            };
            usual = usual_reply(std::string(word(0)), word(1), word(command.elements - 1));
            reply = usual;
        }
        const bool closes = reply.starts_with('C');
        if (!reply.starts_with('N')) {
            reply.remove_prefix(closes ? 1 : 0);
            send(socket, reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        return !closes;
    }

    std::string_view replies_;
    std::deque<Connection> connections_;
};

Servers servers;

class NoOwner final : public LimitOwner {};

microseconds monotonic() noexcept
{
    return std::chrono::duration_cast<microseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
}

constexpr std::array both{
    SequenceLimit{ Algorithm::concurrency },
    SequenceLimit{ Algorithm::gcra, false, true },
};
constexpr std::array algorithms{ Algorithm::concurrency, Algorithm::gcra };

/// The scripts of all runs: a client does not change them.
struct Scripts {
    Scripts()
    {
        all.several = registry.add(several_script(algorithms));
        all.refund = registry.add(refund_script());
        all.charge = registry.add(charge_script(Algorithm::gcra));
        all.statement = registry.add(single_script(Algorithm::concurrency));
        all.block = registry.add(block_script());
        all.sequences = &sequences;
    }

    redis::ScriptRegistry registry;
    SequenceScripts sequences{ both, registry };
    CheckScripts all;
};

/// A request of one of three keys: with both limits, or with the one that may block.
class Request final : public ShardPart {
public:
    Request(Coalescer& coalescer, Holdings& holdings, const Scripts& scripts, std::size_t number)
        : name_("{" + std::to_string(number % 3) + "}"), block_(name_ + "block")
    {
        const Policy held{ Algorithm::concurrency, { 5, 60s }, {}, {}, {} };
        const Policy rate{ Algorithm::gcra, { 5, 60s }, 5, {}, 60s };
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            RemoteLimit& limit = limits_[i];
            limit.redis_key = name_;
            limit.policy = i == 0 ? held : rate;
            limit.block_key = i == 0 ? std::string_view{} : block_;
            limit.holdings = i == 0 ? &holdings : nullptr;
            limit.coalescer = &coalescer;
            limit.shard = coalescer.client().shard_of(name_);
            limit.scripts = scripts.all;
            limit.scripts.bit = SequenceScripts::bit(i);
        }
        limits = std::span(pointers_).subspan(number % 2);
        sent_ = coalescer.send(*this);
    }
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    void ended() noexcept override
    {
        must(sent_ && ++ends_ == 1);
        if (end == End::answered) {
            settle(limits_.back());
        }
    }
    bool is_over() const noexcept { return !sent_ || ends_ > 0; }

private:
    static void settle(const RemoteLimit& limit)
    {
        must(limit.state.remaining >= 0 && limit.state.reset.count() >= 0);
        redis::Client& client = limit.coalescer->client();
        const microseconds now = monotonic();
        ratelimit::settle(client, limit, {}, 2, now);
        take_back(client, limit, { 1, limit.taken_at, limit.state.reset }, now);
        begin_block(client, limit, 0us, now);
    }

    std::string name_;
    std::string block_;
    std::array<RemoteLimit, 2> limits_;
    std::array<RemoteLimit*, 2> pointers_{ &limits_[0], &limits_[1] };
    bool sent_ = false;
    int ends_ = 0;
};

redis::ClientOptions options_of(std::uint8_t topology)
{
    redis::ClientOptions options;
    options.topology = static_cast<redis::Topology>(topology % 3);
    for (const std::uint16_t port : { 6379, 6380 }) {
        options.servers.push_back({ redis::announced_endpoint("127.0.0.1", port) });
    }
    options.master = "mymaster";
    options.server.timeout = 20ms;
    options.server.connect_timeout = 20ms;
    options.server.password = topology >= 128 ? "secret" : "";
    return options;
}

void run(std::uint8_t topology)
{
    static const Scripts scripts;
    LibeventLoop loop;
    redis::ClientEvents events;
    const auto client =
        redis::make_client({ loop, options_of(topology), scripts.registry, events });
    client->start();
    Coalescer coalescer(*client, monotonic);
    std::int64_t units = 0;
    {
        Holdings holdings({ *client, 60s, monotonic, [&](std::int64_t more) { units += more; } });
        std::deque<Request> requests;
        const auto over = [&] {
            servers.serve();
            return std::all_of(requests.begin(), requests.end(), [](const Request& request) {
                return request.is_over();
            });
        };
        for (std::size_t round = 0; round < 3; ++round) {
            for (std::size_t i = 0; i < 4; ++i) {
                requests.emplace_back(coalescer, holdings, scripts, round * 4 + i);
            }
            must(loop.run_until(over, 2s));
        }
        requests.clear();
        loop.run_until(
            [&] {
                servers.serve();
                return client->idle();
            },
            30ms);
        holdings.close();
        must(units == 0);
        client->close();
    }
}

}  // namespace

// hiredis connects to the servers above, whatever address a reply names.

extern "C" int connect(int socket, const sockaddr*, socklen_t)
{
    std::array<int, 2> ends{};
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
    must(dup2(ends[0], socket) == socket && close(ends[0]) == 0);
    servers.add(ends[1]);
    return 0;
}

extern "C" int setsockopt(int, int, int, const void*, socklen_t) noexcept
{
    return 0;  // of TCP
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    if (size > 0) {
        servers.begin(text_of(data + 1, size - 1));
        run(data[0]);
        servers.begin({});
    }
    return 0;
}

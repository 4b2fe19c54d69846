#include "mock_server.h"

#include "redis_server.h"

#include <map>
#include <memory>
#include <vector>

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ratelimit {

MockServer::MockServer(std::function<std::string()> answer)
    : MockServer(std::move(answer), "+OK\r\n")
{
}

MockServer::MockServer(std::function<std::string()> answer, std::string map)
    : MockServer(std::move(answer), std::function([map = std::move(map)](int) { return map; }))
{
}

MockServer::MockServer(std::function<std::string()> answer, std::function<std::string(int)> map)
    : answer_(std::move(answer)),
      map_(std::move(map)),
      listener_(socket(AF_INET, SOCK_STREAM, 0)),
      port_(free_port())
{
    const int yes = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<in_port_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    listen(listener_, 16);
    thread_ = std::thread([this] { serve(); });
}

MockServer::~MockServer()
{
    stop_ = true;
    thread_.join();
    close(listener_);
}

void MockServer::serve()
{
    std::map<int, std::unique_ptr<redisReader, decltype(&redisReaderFree)>> clients;
    while (!stop_) {
        std::vector<pollfd> watched{ { listener_, POLLIN, 0 } };
        for (const auto& [client, reader] : clients) {
            watched.push_back({ client, POLLIN, 0 });
        }
        poll(watched.data(), watched.size(), 5);
        if (const std::lock_guard lock(unasked_guard_); !unasked_.empty()) {
            for (const auto& [client, input] : clients) {
                send(client, unasked_.data(), unasked_.size(), MSG_NOSIGNAL);
            }
            unasked_.clear();
        }
        if ((watched[0].revents & POLLIN) != 0) {
            clients.try_emplace(
                accept(listener_, nullptr, nullptr), redisReaderCreate(), redisReaderFree);
            ++connections_;
        }
        for (std::size_t i = 1; i < watched.size(); ++i) {
            if (watched[i].revents == 0) {
                continue;
            }
            const int client = watched[i].fd;
            char bytes[65536];
            const auto got = recv(client, bytes, sizeof(bytes), 0);
            const auto& reader = clients.at(client);
            if (got > 0) {
                redisReaderFeed(reader.get(), bytes, std::size_t(got));
            }
            if (got <= 0 || !serve_commands(client, *reader)) {
                close(client);
                clients.erase(client);
            }
        }
    }
    for (const auto& [client, reader] : clients) {
        close(client);
    }
}

/// Replies to every whole command that the reader has; false: the connection must be closed.
bool MockServer::serve_commands(int client, redisReader& reader)
{
    void* parsed = nullptr;
    bool stays = true;
    std::string output;
    while (stays && redisReaderGetReply(&reader, &parsed) == REDIS_OK && parsed != nullptr) {
        auto* command = static_cast<redisReply*>(parsed);
        std::string name = command->element[0]->str;
        if (command->elements > 1
            && command->element[1]->str == std::string("return redis.call('TIME')")) {
            name = "TIME";
        }
        probes_ += name == "TIME" ? 1 : 0;
        if (const auto reply = replies_.find(name); reply != replies_.end()) {
            output += reply->second;
        } else if (name == "TIME") {
            output += ignores_time_ ? "" : "*2\r\n$10\r\n1700000000\r\n$1\r\n5\r\n";
        } else if (name == "CLUSTER") {
            output += map_(port_);
        } else if (name == "EVALSHA" || name == "EVAL") {
            ++calls_;
            const std::string answer = answer_();
            stays = answer.find("close") == std::string::npos;
            output += stays ? answer : answer.substr(0, answer.find("close"));
        } else {
            output += "+OK\r\n";
        }
        freeReplyObject(parsed);
    }
    send(client, output.data(), output.size(), MSG_NOSIGNAL);
    return stays;
}

}  // namespace ratelimit

#include "redis_server.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ratelimit {

int free_port()
{
    // Below the ports that the kernel gives to clients, so that none takes it meanwhile.
    static int next = 10'000 + getpid() * 31 % 20'000;
    for (int tries = 0; tries < 1000; ++tries) {
        next = next >= 32'000 ? 10'000 : next + 1;
        const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<in_port_t>(next));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const bool free =
            bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
        close(descriptor);
        if (free) {
            return next;
        }
    }
    throw std::runtime_error("no free port");
}

RedisServer::RedisServer(std::string_view conf, std::string_view bind) : port_(free_port())
{
    char name[] = "/tmp/ratelimit-unit-XXXXXX";
    folder_ = mkdtemp(name);
    std::ofstream(folder_ + "/redis.conf")
        << "bind " << bind << "\nport " << port_ << "\nsave \"\"\nappendonly no\ndir " << folder_
        << "\nunixsocket " << socket_path() << "\n"
        << conf << "\n";
    const auto at = conf.find("requirepass ");
    if (at != conf.npos) {
        const auto rest = conf.substr(at + 12);
        password_ = rest.substr(0, rest.find('\n'));
    }
    start();
}

RedisServer::~RedisServer()
{
    kill();
    std::filesystem::remove_all(folder_);
}

void RedisServer::start()
{
    pid_ = fork();
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int log = open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
        execlp("redis-server", "redis-server", (folder_ + "/redis.conf").c_str(), nullptr);
        _exit(127);
    }
    for (int tries = 0; tries < 500; ++tries) {
        if (ask({ "PING" }) == "PONG") {
            return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{ 10 });
    }
    throw std::runtime_error("redis-server did not start");
}

void RedisServer::pause() const
{
    ::kill(pid_, SIGSTOP);
}

void RedisServer::resume() const
{
    ::kill(pid_, SIGCONT);
}

void RedisServer::kill()
{
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }
}

std::string RedisServer::ask(const std::vector<std::string>& words) const
{
    redisContext* context = redisConnectUnix(socket_path().c_str());
    if (!password_.empty() && context->err == 0) {
        freeReplyObject(redisCommand(context, "AUTH %s", password_.c_str()));
    }
    std::vector<const char*> texts;
    std::vector<std::size_t> lengths;
    for (const std::string& word : words) {
        texts.push_back(word.data());
        lengths.push_back(word.size());
    }
    std::string answer;
    auto* reply = context->err != 0
        ? nullptr
        : static_cast<redisReply*>(redisCommandArgv(
            context, static_cast<int>(words.size()), texts.data(), lengths.data()));
    if (reply != nullptr) {
        answer = reply->type == REDIS_REPLY_INTEGER ? std::to_string(reply->integer)
            : reply->str == nullptr                 ? ""
                                                    : std::string(reply->str, reply->len);
        freeReplyObject(reply);
    }
    redisFree(context);
    return answer;
}

long RedisServer::calls(const std::string& command) const
{
    const auto info = ask({ "INFO", "commandstats" });
    const auto name = "cmdstat_" + command + ":calls=";
    const auto at = info.find(name);
    return at == info.npos ? 0 : std::atol(info.c_str() + at + name.size());
}

}  // namespace ratelimit

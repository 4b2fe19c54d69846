#include "redis_server.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
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

namespace {

/// A socket bound to the port of an IPv4 address, or -1 if the port is in use.
int bound_socket(const char* address, int port)
{
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<in_port_t>(port));
    name.sin_addr.s_addr = inet_addr(address);
    if (bind(descriptor, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0) {
        return descriptor;
    }
    close(descriptor);
    return -1;
}

/// Claims a port of 127.0.0.1 if it is free. It is below the ephemeral ports of the kernel, so that
/// no client takes it. The claim on another loopback address, kept until this process ends, keeps
/// parallel tests off the port: t/lib/Ratelimit/Process.pm makes the same claims.
bool claim(int port)
{
    const int descriptor = bound_socket("127.0.0.1", port);
    if (descriptor < 0) {
        return false;
    }
    close(descriptor);
    return bound_socket("127.99.0.1", port) >= 0;
}

}  // namespace

int free_port()
{
    static int next = 10'000 + getpid() * 31 % 20'000;
    for (int tries = 0; tries < 2000; ++tries) {
        next = next >= 32'000 ? 10'000 : next + 1;
        if (claim(next)) {
            return next;
        }
    }
    throw std::runtime_error("no free port");
}

int free_cluster_port()
{
    for (int tries = 0; tries < 100; ++tries) {
        const int port = free_port();
        const int other = port > 22'000 ? port - 10'000 : port + 10'000;
        if (claim(other)) {
            return std::min(port, other);
        }
    }
    throw std::runtime_error("no two free ports");
}

RedisServer::RedisServer(std::string_view conf, std::string_view bind)
    : port_(conf.find("cluster-enabled yes") == conf.npos ? free_port() : free_cluster_port())
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
    const char* named = std::getenv("REDIS_SERVER");
    const char* server = named == nullptr ? "redis-server" : named;
    pid_ = fork();
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int log = open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
        execlp(server, server, (folder_ + "/redis.conf").c_str(), nullptr);
        _exit(127);
    }
    for (int tries = 0; tries < 2000; ++tries) {
        if (ask({ "PING" }) == "PONG") {
            return;
        }
        if (waitpid(pid_, nullptr, WNOHANG) != 0) {
            pid_ = 0;
            break;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{ 10 });
    }
    std::ostringstream log;
    log << std::ifstream(folder_ + "/log").rdbuf();
    throw std::runtime_error("redis-server did not start: " + log.str());
}

void RedisServer::pause() const
{
    ::kill(pid_, SIGSTOP);
    // Until it stands still, it may reply.
    siginfo_t state{};
    waitid(P_PID, static_cast<id_t>(pid_), &state, WSTOPPED | WEXITED | WNOWAIT);
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
    for (const auto& counted : { command, command.substr(0, command.find('|')) }) {
        const auto name = "cmdstat_" + counted + ":calls=";
        const auto at = info.find(name);
        if (at != info.npos) {
            return std::atol(info.c_str() + at + name.size());
        }
    }
    return 0;
}

long RedisServer::key_reads() const
{
    const auto info = ask({ "INFO", "stats" });
    long reads = 0;
    for (const std::string name : { "keyspace_hits:", "keyspace_misses:" }) {
        const auto at = info.find(name);
        reads += at == info.npos ? 0 : std::atol(info.c_str() + at + name.size());
    }
    return reads;
}

}  // namespace ratelimit

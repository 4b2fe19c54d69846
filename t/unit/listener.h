#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ratelimit {

/// A listening socket on a free port of 127.0.0.1.
class Listener {
public:
    Listener()
    {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof(address);
        bind(socket_, reinterpret_cast<sockaddr*>(&address), length);
        listen(socket_, 1);
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
        port_ = ntohs(address.sin_port);
    }
    ~Listener() { close(socket_); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    int socket() const noexcept { return socket_; }
    int port() const noexcept { return port_; }

private:
    const int socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    int port_ = 0;
};

}  // namespace ratelimit

#pragma once

#include <memory>
#include <string>

struct redisContext;
struct ssl_ctx_st;
struct ssl_st;

namespace ratelimit::redis {

struct TlsOptions {
    std::string trusted_certificate;  // a PEM file of CAs; empty: the system's
    std::string certificate;          // ours, and its key: both or none
    std::string certificate_key;
    /// Sent, and looked for in the server's certificate: a name or address. Empty: the server's
    /// own.
    std::string server_name;
    bool verify = true;
};

/// What TLS connections to a client's servers have in common: files are read once, by the
/// constructor.
class TlsContext {
public:
    /// Throws std::runtime_error: which file could not be used, and why.
    explicit TlsContext(TlsOptions options);

    /// Begins the handshake of a connection that has just been made; it goes on with hiredis's
    /// reads and writes. `host` is the server's name or address, empty for a unix socket. The
    /// connection owns the result. Null: it failed, for this `reason`.
    ssl_st* start(redisContext& context, const std::string& host, std::string& reason) const;

    /// Why a connection was lost, if TLS says; empty: it does not. Empties OpenSSL's error queue,
    /// which nginx's own connections share.
    static std::string failure(const ssl_st* connection);

private:
    struct Free {
        void operator()(ssl_ctx_st* context) const noexcept;
    };

    TlsOptions options_;
    std::unique_ptr<ssl_ctx_st, Free> context_;
};

}  // namespace ratelimit::redis

#pragma once

#include <map>
#include <memory>
#include <string>

struct redisContext;
struct ssl_ctx_st;
struct ssl_session_st;
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
/// constructor. The last session of each server is kept and resumed by the next connection to it,
/// which saves both sides the certificates and most of the arithmetic. Sessions of servers that
/// have no connection are dropped when there are more than most_sessions.
class TlsContext {
public:
    static constexpr std::size_t most_sessions = 64;

    /// Throws std::runtime_error: which file could not be used, and why.
    explicit TlsContext(TlsOptions options);
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;

    /// Begins the handshake of a connection that has just been made; it goes on with hiredis's
    /// reads and writes. `host` is the server's name or address, empty for a unix socket. The
    /// connection owns the result, which must not outlive this. Null: it failed, for this `reason`.
    ssl_st* start(redisContext& context, const std::string& host, std::string& reason) const;

    /// Of how many servers a session is kept.
    std::size_t sessions() const noexcept { return sessions_.size(); }

    /// Why a connection was lost, if TLS says; empty: it does not. Empties OpenSSL's error queue,
    /// which nginx's own connections share.
    static std::string failure(const ssl_st* connection);

private:
    struct Free {
        void operator()(ssl_ctx_st* context) const noexcept;
        void operator()(ssl_session_st* session) const noexcept;
    };
    using Session = std::unique_ptr<ssl_session_st, Free>;
    /// A server's last session, or null; shared with its connections, which keep it there.
    using SessionPlace = std::shared_ptr<Session>;

    static int place_index() noexcept;
    static int keep_session(ssl_st* connection, ssl_session_st* session) noexcept;
    SessionPlace& place_of(const std::string& server) const;
    bool prepare(ssl_st* connection, const redisContext& context, const std::string& host) const;

    TlsOptions options_;
    // By server, and the name it is verified by.
    mutable std::map<std::string, SessionPlace> sessions_;
    std::unique_ptr<ssl_ctx_st, Free> context_;
};

}  // namespace ratelimit::redis

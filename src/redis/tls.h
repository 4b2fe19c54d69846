#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

struct redisContext;
struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;

namespace ratelimit::redis {

class ContextOwner;

struct TlsOptions {
    std::string trusted_certificate;  // a PEM file of CAs; empty: the system's
    std::string certificate;          // of the client; given together with its key, or not at all
    std::string certificate_key;
    /// The name or address that is sent (SNI) and that the server's certificate must have. Empty:
    /// that of the server.
    std::string server_name;
    bool verify = true;
};

/// The common state of the TLS connections to a client's servers. The constructor reads the files.
/// The last session of each server is kept and resumed by the next connection to it, which saves
/// both sides the certificates and most of the computation. When there are more than most_sessions,
/// those of servers without a connection are dropped.
class TlsContext {
public:
    static constexpr std::size_t most_sessions = 64;

    /// Throws std::runtime_error, which says what file could not be used, and why; or that nginx's
    /// OpenSSL is of another major version than the module's.
    explicit TlsContext(TlsOptions options);
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;

    /// Begins the handshake of a new connection, which continues with hiredis's reads and writes.
    /// `host`: the server's name or address; empty for a unix socket. `owner`, of the context,
    /// hears of each step. The connection owns the result, which must not outlive this object.
    /// Throws std::runtime_error, which says why it failed.
    ssl_st* start(redisContext& context, const std::string& host, ContextOwner& owner) const;

    /// The number of servers with a session.
    std::size_t sessions() const noexcept { return sessions_.size(); }

    /// The reason of an attempt to connect that took too long. `connection`: null without TLS.
    static std::string_view timeout(const ssl_st* connection) noexcept;

    /// Why TLS caused a connection to be lost; empty: it did not. Clears OpenSSL's error queue,
    /// which nginx's own connections share.
    static std::string failure(const ssl_st* connection);

private:
    struct Free {
        void operator()(ssl_ctx_st* context) const noexcept;
        void operator()(ssl_session_st* session) const noexcept;
    };
    using Session = std::unique_ptr<ssl_session_st, Free>;
    /// A server's last session, or null. Shared with its connections, which store it there.
    using SessionSlot = std::shared_ptr<Session>;

    static int slot_index() noexcept;
    static int keep_session(ssl_st* connection, ssl_session_st* session) noexcept;
    SessionSlot& slot_of(const std::string& server) const;
    bool prepare(ssl_st* connection, const redisContext& context, const std::string& host) const;

    TlsOptions options_;
    // By server and the name that it is verified by.
    mutable std::map<std::string, SessionSlot> sessions_;
    std::unique_ptr<ssl_ctx_st, Free> context_;
};

}  // namespace ratelimit::redis

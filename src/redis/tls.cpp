#include "redis/tls.h"

#include "redis/context_owner.h"
#include "redis/reply_limits.h"

#include <stdexcept>
#include <utility>

#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace ratelimit::redis {

namespace {

std::string last_error()
{
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return reason == nullptr ? "unknown reason" : reason;
}

[[noreturn]] void refuse_file(const std::string& path)
{
    throw std::runtime_error("could not use \"" + path + "\": " + last_error());
}

/// Throws if OpenSSL's functions are not those that this was compiled for. An nginx with an OpenSSL
/// of its own inside exports its functions, and the loader takes those before a library's.
void expect_openssl()
{
    constexpr int major = 28;  // the bits of a version below its first number
    if (OpenSSL_version_num() >> major != OPENSSL_VERSION_NUMBER >> major) {
        throw std::runtime_error(
            std::string("could not use TLS: this nginx has ") + OpenSSL_version(OPENSSL_VERSION)
            + " inside, the module was built for " OPENSSL_VERSION_TEXT);
    }
}

/// Sets the name or address that the certificate must have as an alternative name: it has separate
/// fields for them. Its subject (CN) is free text, which counts for no name.
bool expect_name(SSL* ssl, const std::string& name)
{
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str()) == 1
        || SSL_set1_host(ssl, name.c_str()) == 1;
}

void on_step(const SSL* ssl, int where, int) noexcept
{
    if ((where & SSL_CB_LOOP) != 0) {
        static_cast<ContextOwner*>(SSL_get_app_data(ssl))->progressed();
    }
}

bool is_address(const std::string& name)
{
    ASN1_OCTET_STRING* address = a2i_IPADDRESS(name.c_str());
    ASN1_OCTET_STRING_free(address);
    return address != nullptr;
}

}  // namespace

void TlsContext::Free::operator()(ssl_ctx_st* context) const noexcept
{
    SSL_CTX_free(context);
}

void TlsContext::Free::operator()(ssl_session_st* session) const noexcept
{
    SSL_SESSION_free(session);
}

TlsContext::TlsContext(TlsOptions options) : options_(std::move(options))
{
    expect_openssl();
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX* context = context_.get();
    if (context == nullptr) {
        throw std::runtime_error(last_error());
    }
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_session_cache_mode(
        context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE);
    SSL_CTX_sess_set_new_cb(context, keep_session);
    SSL_CTX_set_verify(context, options_.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);

    const std::string& trusted = options_.trusted_certificate;
    if (trusted.empty()) {
        SSL_CTX_set_default_verify_paths(context);
    } else if (SSL_CTX_load_verify_locations(context, trusted.c_str(), nullptr) != 1) {
        refuse_file(trusted);
    }
    if (options_.certificate.empty()) {
        return;
    }
    if (SSL_CTX_use_certificate_chain_file(context, options_.certificate.c_str()) != 1) {
        refuse_file(options_.certificate);
    }
    // Else OpenSSL would ask for it on the terminal, also at each reload.
    bool has_passphrase = false;
    SSL_CTX_set_default_passwd_cb_userdata(context, &has_passphrase);
    SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void* asked) {
        *static_cast<bool*>(asked) = true;
        return 0;
    });
    if (SSL_CTX_use_PrivateKey_file(context, options_.certificate_key.c_str(), SSL_FILETYPE_PEM)
            != 1
        || SSL_CTX_check_private_key(context) != 1) {
        if (has_passphrase) {
            ERR_clear_error();
            throw std::runtime_error(
                "cannot use \"" + options_.certificate_key
                + "\": it has a passphrase, expected a key without one");
        }
        refuse_file(options_.certificate_key);
    }
}

/// A session is received in the handshake (TLS 1.2) or in tickets after it (TLS 1.3). The last one
/// is kept, as a copy: OpenSSL invalidates a session whose connection ends without close_notify.
int TlsContext::keep_session(ssl_st* connection, ssl_session_st* session) noexcept
{
    const auto* slot = static_cast<SessionSlot*>(SSL_get_ex_data(connection, slot_index()));
    (*slot)->reset(SSL_SESSION_dup(session));
    return 0;
}

/// The index of the SessionSlot in a connection's data. It is deleted with the connection.
int TlsContext::slot_index() noexcept
{
    static const int index = SSL_get_ex_new_index(
        0, nullptr, nullptr, nullptr, [](void*, void* slot, CRYPTO_EX_DATA*, int, long, void*) {
            delete static_cast<SessionSlot*>(slot);
        });
    return index;
}

TlsContext::SessionSlot& TlsContext::slot_of(const std::string& server) const
{
    if (sessions_.size() >= most_sessions && !sessions_.contains(server)) {
        std::erase_if(sessions_, [](const auto& kept) { return kept.second.use_count() == 1; });
    }
    SessionSlot& slot = sessions_[server];
    if (slot == nullptr) {
        slot = std::make_shared<Session>();
    }
    return slot;
}

/// Sets the name that the server is verified by, and the session to resume.
bool TlsContext::prepare(SSL* ssl, const redisContext& context, const std::string& host) const
{
    const std::string& name = options_.server_name.empty() ? host : options_.server_name;
    const bool named = name.empty()
        || ((is_address(name) || SSL_set_tlsext_host_name(ssl, name.c_str()) == 1)
            && expect_name(ssl, name));
    if (!named) {
        return false;
    }
    const std::string server = context.unix_sock.path != nullptr
        ? context.unix_sock.path
        : std::string(context.tcp.host) + " " + std::to_string(context.tcp.port);
    // The certificate of a resumed session was verified by this name when the session began.
    auto own = std::make_unique<SessionSlot>(slot_of(server + " " + name));
    if (SSL_set_ex_data(ssl, slot_index(), own.get()) != 1) {
        return false;
    }
    if (const Session& kept = **own.release(); kept != nullptr) {
        const Session resumed(SSL_SESSION_dup(kept.get()));
        return resumed != nullptr && SSL_set_session(ssl, resumed.get()) == 1;
    }
    return true;
}

ssl_st* TlsContext::start(redisContext& context, const std::string& host, ContextOwner& owner) const
{
    const auto free = [](SSL* ssl) { SSL_free(ssl); };
    std::unique_ptr<SSL, decltype(free)> ssl(SSL_new(context_.get()), free);
    const bool prepared = ssl != nullptr && prepare(ssl.get(), context, host);
    // is_address leaves an error in the queue.
    ERR_clear_error();
    if (!prepared) {
        throw std::runtime_error("TLS could not be started");
    }
    SSL_set_app_data(ssl.get(), &owner);
    SSL_set_info_callback(ssl.get(), on_step);
    if (redisInitiateSSL(&context, ssl.get()) != REDIS_OK) {
        // A server nearby may have replied already, so that its certificate may have been refused.
        const std::string reason = failure(ssl.get());
        throw std::runtime_error(reason.empty() ? context.errstr : reason);
    }
    ReplyLimits::set_for_tls(context);
    return ssl.release();
}

std::string_view TlsContext::timeout(const ssl_st* connection) noexcept
{
    const bool unanswered =
        connection != nullptr && SSL_get_state(connection) == TLS_ST_CW_CLNT_HELLO;
    return unanswered ? "timed out while connecting, no answer to TLS: is the port one without TLS?"
                      : "timed out while connecting";
}

std::string TlsContext::failure(const ssl_st* connection)
{
    const long verified = SSL_get_verify_result(connection);
    const unsigned long error = ERR_peek_last_error();
    std::string reason;
    if (verified != X509_V_OK && SSL_get_verify_mode(connection) != SSL_VERIFY_NONE) {
        reason =
            std::string("its certificate was refused: ") + X509_verify_cert_error_string(verified);
    } else if (ERR_GET_LIB(error) == ERR_LIB_SSL) {
        reason = std::string("TLS: ") + ERR_reason_error_string(error);
    }
    ERR_clear_error();
    return reason;
}

}  // namespace ratelimit::redis

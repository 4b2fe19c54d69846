#include "http/counted_key.h"

#include "nginx/text.h"
#include "store/keyed_tree.h"

#include <memory>

#include <openssl/evp.h>

namespace ratelimit::http {

namespace {

constexpr std::size_t hash_bytes = key_hash_length / 2;

static_assert(max_key_length <= KeyedNode::key_limit, "shared memory has room for every key");
static_assert(key_hash_length <= max_key_length);

struct FreeDigest {
    void operator()(EVP_MD_CTX* digest) const noexcept { EVP_MD_CTX_free(digest); }
};

/// The process's SHA-256 context, ready for a new digest; one context is reused because OpenSSL
/// allocates memory for each. Null: OpenSSL failed.
EVP_MD_CTX* new_digest() noexcept
{
    static const std::unique_ptr<EVP_MD_CTX, FreeDigest> digest = [] {
        std::unique_ptr<EVP_MD_CTX, FreeDigest> made(EVP_MD_CTX_new());
        if (made != nullptr && EVP_DigestInit_ex(made.get(), EVP_sha256(), nullptr) != 1) {
            made.reset();
        }
        return made;
    }();
    if (digest == nullptr || EVP_DigestInit_ex(digest.get(), nullptr, nullptr) != 1) {
        return nullptr;
    }
    return digest.get();
}

/// The first half of the key's SHA-256, in hexadecimal digits.
std::string_view hash_of(ngx_pool_t* pool, std::string_view key) noexcept
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    EVP_MD_CTX* digest = new_digest();
    auto* text = static_cast<u_char*>(ngx_pnalloc(pool, key_hash_length));
    if (digest == nullptr || text == nullptr
        || EVP_DigestUpdate(digest, key.data(), key.size()) != 1
        || EVP_DigestFinal_ex(digest, hash, nullptr) != 1) {
        return {};
    }
    ngx_hex_dump(text, hash, hash_bytes);
    return nginx::view({ key_hash_length, text });
}

}  // namespace

std::string_view counted_key(ngx_pool_t* pool, const ZoneConf& zone, std::string_view key) noexcept
{
    return is_counted_as_hash(key, zone.hash_key) ? hash_of(pool, key) : key;
}

}  // namespace ratelimit::http

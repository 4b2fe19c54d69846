#include "http/api/change_condition.h"

#include "http/api/response.h"
#include "nginx/text.h"

#include <array>

#include <openssl/evp.h>

namespace ratelimit::http {

namespace {

constexpr std::size_t digest_bytes = 20;  // redis.sha1hex

/// The ETag of an override, by its text in Redis: "\"...\"". Empty: OpenSSL has no SHA-1.
std::string entity_tag(std::string_view stored)
{
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    if (EVP_Digest(stored.data(), stored.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1
        || size != digest_bytes) {
        return {};
    }
    std::string text(2 * digest_bytes, '\0');
    ngx_hex_dump(reinterpret_cast<u_char*>(text.data()), digest.data(), digest_bytes);
    return "\"" + text + "\"";
}

}  // namespace

ngx_int_t send_tagged(ngx_http_request_t* r, const std::string& json, std::string_view stored)
{
    const std::string tag = stored.empty() ? std::string{} : entity_tag(stored);
    const ngx_str_t copy = nginx::copied(r->pool, tag);
    if (copy.data == nullptr) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    const ApiHeader header{ "ETag", nginx::view(copy) };
    return send_response(
        r, NGX_HTTP_OK, json_type, json, { &header, tag.empty() ? std::size_t{ 0 } : 1 });
}

std::optional<std::string> change_condition(ngx_http_request_t* r)
{
    const ngx_table_elt_t* match = r->headers_in.if_match;
    const ngx_table_elt_t* none = r->headers_in.if_none_match;
    if (none != nullptr) {
        const bool known = match == nullptr && nginx::view(none->value) == "*";
        return known ? std::optional<std::string>("-") : std::nullopt;
    }
    if (match == nullptr) {
        return std::string{};
    }
    std::string_view tag = nginx::view(match->value);
    if (tag == "*") {
        return std::string(tag);
    }
    if (tag.starts_with("W/")) {
        tag.remove_prefix(2);  // by a filter, such as gzip
    }
    const bool quoted =
        tag.size() == 2 * digest_bytes + 2 && tag.front() == '"' && tag.back() == '"';
    return quoted ? std::optional(std::string(tag.substr(1, 2 * digest_bytes))) : std::nullopt;
}

}  // namespace ratelimit::http

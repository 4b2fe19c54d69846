#include "redis/script_registry.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <openssl/evp.h>

namespace ratelimit::redis {

namespace {

/// As Redis computes it.
ScriptDigest digest_of(const std::string& text)
{
    constexpr std::string_view digits = "0123456789abcdef";
    std::array<unsigned char, EVP_MAX_MD_SIZE> sha1{};
    if (EVP_Digest(text.data(), text.size(), sha1.data(), nullptr, EVP_sha1(), nullptr) != 1) {
        throw std::runtime_error("OpenSSL computes no SHA-1, by which Redis names scripts");
    }
    ScriptDigest digest{};
    for (std::size_t i = 0; i < digest.size(); ++i) {
        const unsigned byte = sha1[i / 2];
        digest[i] = digits[i % 2 == 0 ? byte >> 4U : byte & 15U];
    }
    return digest;
}

}  // namespace

ScriptId ScriptRegistry::add(std::string text, Added why)
{
    const ScriptDigest digest = digest_of(text);
    const auto found = std::ranges::find(scripts_, digest, &Registered::digest);
    if (found != scripts_.end()) {
        return static_cast<ScriptId>(found - scripts_.begin());
    }
    scripts_.push_back({ std::move(text), digest, why == Added::goes_first });
    chosen_ += why == Added::chosen ? 1 : 0;
    return static_cast<ScriptId>(scripts_.size() - 1);
}

bool CommandBuffer::use_text_of(ScriptId script) noexcept
try {
    lacking_.resize(std::max(lacking_.size(), scripts_.size()));
    lacking_.at(static_cast<std::size_t>(script)) = true;
    return true;
} catch (const std::exception&) {
    return false;
}

}  // namespace ratelimit::redis

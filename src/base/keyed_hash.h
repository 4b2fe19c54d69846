#pragma once

#include "base/random.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ratelimit {

/// A secret of this node, so that clients cannot choose keys with equal hashes.
struct HashSecret {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
};

/// Made of the system's random numbers. Throws if there are none.
inline HashSecret random_secret()
{
    return { random_number(), random_number() };
}

/// SipHash-1-3 of texts: J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF". In the
/// byte order of this machine: no other one needs the same hash.
class KeyedHash {
public:
    explicit KeyedHash(const HashSecret& secret) noexcept
        : v0_(secret.first ^ 0x736F'6D65'7073'6575),
          v1_(secret.second ^ 0x646F'7261'6E64'6F6D),
          v2_(secret.first ^ 0x6C79'6765'6E65'7261),
          v3_(secret.second ^ 0x7465'6462'7974'6573)
    {
    }

    void add(std::string_view text) noexcept
    {
        const std::uint64_t length = std::uint64_t{ text.size() } << 56U;
        std::uint64_t word = 0;
        for (; text.size() >= sizeof(word); text.remove_prefix(sizeof(word))) {
            std::memcpy(&word, text.data(), sizeof(word));
            add(word);
        }
        add(length | rest(text));
    }

    /// The hash of all that was added. Call once.
    std::uint64_t finish() noexcept
    {
        v2_ ^= 0xFF;
        round();
        round();
        round();
        return v0_ ^ v1_ ^ v2_ ^ v3_;
    }

private:
    /// Fewer bytes than a word has, followed by zeros.
    static std::uint64_t rest(std::string_view bytes) noexcept
    {
        constexpr std::size_t half = 4;
        std::uint64_t word = 0;
        char* const out = reinterpret_cast<char*>(&word);
        if (bytes.size() < half) {
            bytes.copy(out, half);
            return word;
        }
        // Two copies that may overlap take fewer instructions than one byte after another.
        const std::size_t behind = bytes.size() - half;
        std::memcpy(out, bytes.data(), half);
        std::memcpy(out + behind, bytes.data() + behind, half);
        return word;
    }

    void add(std::uint64_t word) noexcept
    {
        v3_ ^= word;
        round();
        v0_ ^= word;
    }

    void round() noexcept
    {
        v0_ += v1_;
        v1_ = std::rotl(v1_, 13) ^ v0_;
        v0_ = std::rotl(v0_, 32);
        v2_ += v3_;
        v3_ = std::rotl(v3_, 16) ^ v2_;
        v0_ += v3_;
        v3_ = std::rotl(v3_, 21) ^ v0_;
        v2_ += v1_;
        v1_ = std::rotl(v1_, 17) ^ v2_;
        v2_ = std::rotl(v2_, 32);
    }

    std::uint64_t v0_;
    std::uint64_t v1_;
    std::uint64_t v2_;
    std::uint64_t v3_;
};

/// Of one text.
inline std::uint64_t keyed_hash(const HashSecret& secret, std::string_view text) noexcept
{
    KeyedHash hash(secret);
    hash.add(text);
    return hash.finish();
}

}  // namespace ratelimit

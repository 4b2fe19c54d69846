#include "base/keyed_hash.h"

#include "base/random.h"

#include <bit>
#include <cstring>

namespace ratelimit {

namespace {

class SipState {
public:
    explicit SipState(const HashSecret& secret) noexcept
        : v0_(secret.first ^ 0x736F'6D65'7073'6575),
          v1_(secret.second ^ 0x646F'7261'6E64'6F6D),
          v2_(secret.first ^ 0x6C79'6765'6E65'7261),
          v3_(secret.second ^ 0x7465'6462'7974'6573)
    {
    }
    void add(std::uint64_t word) noexcept
    {
        v3_ ^= word;
        round();
        v0_ ^= word;
    }
    std::uint64_t finish() noexcept
    {
        v2_ ^= 0xFF;
        round();
        round();
        round();
        return v0_ ^ v1_ ^ v2_ ^ v3_;
    }

private:
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

}  // namespace

HashSecret random_secret()
{
    return { random_number(), random_number() };
}

std::uint64_t keyed_hash(const HashSecret& secret, std::string_view text) noexcept
{
    SipState state(secret);
    // In the byte order of this machine: no other one needs the same hash.
    std::uint64_t word = 0;
    const std::uint64_t length = std::uint64_t{ text.size() } << 56U;
    for (; text.size() >= sizeof(word); text.remove_prefix(sizeof(word))) {
        std::memcpy(&word, text.data(), sizeof(word));
        state.add(word);
    }
    word = 0;
    text.copy(reinterpret_cast<char*>(&word), sizeof(word));
    state.add(length | word);
    return state.finish();
}

}  // namespace ratelimit

#pragma once

#include <atomic>
#include <cstdint>

namespace ratelimit {

// A link of a list in shared memory, for readers without a lock. Its low bits are the index of a
// block (0: the end); its high byte is a Bloom filter of the hashes from here to the list's end.

constexpr unsigned index_bits = 24;
constexpr std::uint32_t most_blocks = (1U << index_bits) - 1;

constexpr std::uint32_t index_of(std::uint32_t link) noexcept
{
    return link & most_blocks;
}

/// The bit of this hash in the filter. A bucket is chosen by the hash's low bits.
constexpr std::uint32_t filter_bit(std::uint32_t hash) noexcept
{
    return 1U << (index_bits + (hash >> 29U));
}

inline std::uint32_t load(const std::uint32_t& value) noexcept
{
    // atomic_ref takes no const object, but a load changes nothing.
    return std::atomic_ref(const_cast<std::uint32_t&>(value)).load(std::memory_order_acquire);
}

inline void publish(std::uint32_t& link, std::uint32_t value) noexcept
{
    std::atomic_ref(link).store(value, std::memory_order_release);
}

}  // namespace ratelimit

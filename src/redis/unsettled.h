#pragma once

#include "base/list.h"

#include <array>
#include <cstddef>
#include <functional>
#include <string_view>

namespace ratelimit::redis {

class UnsettledKeys;

/// Exists while Redis may count, or may still count, for a key what no request used: a reply that
/// comes late, or what is sent because of it, is awaited.
class Unsettled : public Link<Unsettled> {
public:
    Unsettled(UnsettledKeys& all, std::string_view key) noexcept;

private:
    friend class UnsettledKeys;

    const std::size_t hash_;
};

/// The keys of which there is any. Keys of equal hashes are taken for one.
class UnsettledKeys {
public:
    bool contains(std::string_view key) const noexcept
    {
        const std::size_t hash = hash_of(key);
        bool found = false;
        buckets_[hash % buckets_.size()].each(
            [&](const Unsettled& each) { found = found || each.hash_ == hash; });
        return found;
    }

private:
    friend class Unsettled;

    static std::size_t hash_of(std::string_view key) noexcept
    {
        return std::hash<std::string_view>{}(key);
    }

    std::array<List<Unsettled>, 256> buckets_;
};

inline Unsettled::Unsettled(UnsettledKeys& all, std::string_view key) noexcept
    : hash_(UnsettledKeys::hash_of(key))
{
    all.buckets_[hash_ % all.buckets_.size()].push_back(*this);
}

}  // namespace ratelimit::redis

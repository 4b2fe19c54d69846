#pragma once

#include "rehearse/count/first_keys.h"
#include "rehearse/values/request_facts.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// The most frequent of some texts: Misra and Gries, Science of Computer Programming 2, 1982. Right
/// if it is more than a fifth of them.
class MainText {
public:
    void add(std::string_view text);
    /// Empty: there was none.
    const std::string& get() const { return first().text; }
    /// How often, at least.
    std::uint64_t count() const { return first().count; }

private:
    struct Place {
        std::string text;
        std::uint64_t count = 0;
    };
    const Place& first() const;

    std::array<Place, 4> places_;
};

/// A key of which requests were refused.
struct RefusedKey {
    std::string key;
    std::uint64_t refused = 0;
    std::uint64_t succeeded = 0;  // of these, at that time
    std::int64_t first = 0;       // us since the epoch: the first refusal
    MainText path;
    MainText folder;
    MainText agent;

    /// The path of at least a quarter of the requests, or else a folder.
    const std::string& main_path() const
    {
        return path.count() * 4 >= refused ? path.get() : folder.get();
    }

    /// The most refused is first.
    friend bool operator<(const RefusedKey& left, const RefusedKey& right) noexcept
    {
        if (left.refused != right.refused) {
            return left.refused > right.refused;
        }
        return left.first != right.first ? left.first < right.first : left.key < right.key;
    }
};

/// What a limit did to requests, or all limits together.
struct Outcome {
    static constexpr std::size_t most_refused_keys = 20'000;  // that are remembered

    std::uint64_t requests = 0;   // that the limit applied to
    std::uint64_t refused = 0;    // of these
    std::uint64_t succeeded = 0;  // of the refused ones, with 2xx at that time
    FirstKeys<RefusedKey> refused_keys{ most_refused_keys };

    /// Notes the refusal of a request, which `refused` counts. `key`: empty if it is not known.
    void note_refusal(
        std::optional<std::string_view> key, std::int64_t now, Values& values,
        const RequestFacts& facts);
};

}  // namespace ratelimit::rehearse

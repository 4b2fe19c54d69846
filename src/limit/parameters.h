#pragma once

#include "limit/grammar.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ratelimit {

inline constexpr std::string_view right{};  // of Parameter::set: nothing else was expected

/// A parameter of a directive, and how it is read.
template <class Settings>
struct Parameter {
    std::string_view name;  // with its equals sign, unless it has no value
    /// Returns what was expected, a static text. Empty: the value is right. `word`: name and value.
    std::string_view (*set)(Settings& settings, std::string_view value, std::string_view word);
};

/// Reads each word as one of the parameters. `all`: what was expected in place of any other word.
template <class Settings, std::size_t count>
std::optional<WordError> read_parameters(
    Words words, const Parameter<Settings> (&known)[count], std::string_view all,
    Settings& settings)
{
    bool seen[count] = {};

    for (const std::string_view word : words) {
        const auto* const found =
            std::find_if(std::begin(known), std::end(known), [word](const auto& one) {
                return word.starts_with(one.name);
            });
        std::string_view expected = all;
        const bool cut = std::any_of(std::begin(known), std::end(known), [word](const auto& one) {
            return one.name.size() == word.size() + 1 && one.name.starts_with(word)
                && one.name.ends_with('=');
        });
        if (cut) {
            expected = "\"=\" and a value directly behind the name, without spaces";
        } else if (found != std::end(known)) {
            expected = std::exchange(seen[found - std::begin(known)], true)
                ? "each parameter once"
                : found->set(settings, word.substr(found->name.size()), word);
        }
        if (!expected.empty()) {
            return WordError{ std::string(word), expected };
        }
    }
    return std::nullopt;
}

}  // namespace ratelimit

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

/// Aborts, which is a finding, unless the condition holds.
inline void must(bool holds)
{
    if (!holds) {
        std::abort();
    }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size)
{
    return { reinterpret_cast<const char*>(data), size };
}

/// Removes the text up to the next zero byte, and that byte, from the front; returns the text.
inline std::string_view take_text(std::string_view& input)
{
    const auto end = input.find('\0');
    const auto text = input.substr(0, end);
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
    return text;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

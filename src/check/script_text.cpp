#include "check/script_text.h"

#include <bitset>

#include "lua_scripts.h"

namespace ratelimit {

namespace {

using Pieces = std::span<const lua::Piece>;

/// The file of lua/ that counts this way: its check, its commit and its refund.
Pieces source_of(Algorithm algorithm) noexcept
{
    switch (algorithm) {
    case Algorithm::fixed_window:
        return lua::fixed_window;
    case Algorithm::sliding_window_counter:
        return lua::sliding_window_counter;
    case Algorithm::sliding_window_log:
        return lua::sliding_window_log;
    case Algorithm::sliding_window_buckets:
        return lua::sliding_window_buckets;
    default:
        return lua::gcra;
    }
}

/// A frame with an algorithm's pieces in the places that it names.
std::string filled(Pieces frame, Pieces source)
{
    std::string text;
    for (const lua::Piece& part : frame) {
        for (const lua::Piece& piece : source) {
            if (piece.name == part.name) {
                text += piece.text;
            }
        }
        text += part.text;
    }
    return text;
}

/// For a frame's table `algorithms`, by code: `entry`, of the functions that the file of each
/// algorithm has in the frame `functions`. A block for each file: all name their functions alike.
std::string table_of(
    const std::bitset<algorithm_count>& algorithms, Pieces functions, std::string_view entry)
{
    std::string text;
    Pieces last;
    for (std::size_t i = 0; i < algorithm_count; ++i) {
        if (!algorithms.test(i)) {
            continue;
        }
        const Pieces source = source_of(static_cast<Algorithm>(i));
        if (source.data() != last.data()) {
            text += last.empty() ? "do\n" : "end\ndo\n";
            text += filled(functions, source);
            last = source;
        }
        text += "algorithms['" + std::to_string(i) + "'] = ";
        text += entry;
        text += "\n";
    }
    return text + "end\n";
}

std::string with_algorithms(Pieces frame, std::string_view table)
{
    const lua::Piece piece{ "algorithms", table };
    return filled(frame, { &piece, 1 });
}

}  // namespace

std::string single_script(Algorithm algorithm)
{
    return filled(lua::single, source_of(algorithm));
}

std::string several_script(std::span<const Algorithm> algorithms)
{
    std::bitset<algorithm_count> used;
    for (const Algorithm algorithm : algorithms) {
        used.set(static_cast<std::size_t>(algorithm));
    }
    return with_algorithms(
        lua::several, table_of(used, lua::functions, "{ check = check, commit = commit }"));
}

std::string peek_script(std::span<const Algorithm> algorithms)
{
    return std::string(lua::peek) + several_script(algorithms);
}

std::string refund_script()
{
    constexpr lua::Piece refund_alone[] = { { "refund", "" } };
    return with_algorithms(
        lua::refund, table_of(std::bitset<algorithm_count>{}.set(), refund_alone, "refund"));
}

}  // namespace ratelimit

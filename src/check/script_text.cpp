#include "check/script_text.h"

#include <bitset>

#include "lua_scripts.h"

namespace ratelimit {

namespace {

using Pieces = std::span<const lua::Piece>;

/// The file of lua/ that counts this way: its check sets `granted` and what it keeps, its settling
/// counts the request if `take` says so and sets the answer.
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

std::string code_of(Algorithm algorithm)
{
    return std::to_string(static_cast<int>(algorithm));
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

    std::string text{ lua::common };
    text += "local algorithms = {}\n";
    for (std::size_t i = 0; i < algorithm_count; ++i) {
        const auto algorithm = static_cast<Algorithm>(i);
        if (!used.test(i)) {
            continue;
        }
        // A block of its own: every file calls its functions check and commit.
        text += "do\n";
        text += filled(lua::functions, source_of(algorithm));
        text += "algorithms['" + code_of(algorithm) + "'] = { check = check, commit = commit }\n";
        text += "end\n";
    }
    text += lua::several;
    return text;
}

std::string peek_script(std::span<const Algorithm> algorithms)
{
    return std::string(lua::peek) + several_script(algorithms);
}

std::string refund_script()
{
    std::string text{ lua::common };
    text += lua::refund;
    return text;
}

}  // namespace ratelimit

#include "check/script_text.h"

#include "check/script_call.h"

#include <bitset>
#include <vector>

#include "lua_scripts.h"

namespace ratelimit {

namespace {

using Pieces = std::span<const lua::Piece>;

/// The file in lua/ with the algorithm's check, commit and refund.
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
    case Algorithm::concurrency:
        return lua::concurrency;
    case Algorithm::token_bucket:
    case Algorithm::leaky_bucket:
    case Algorithm::gcra:
        break;
    }
    return lua::gcra;
}

std::string_view piece_of(Pieces source, std::string_view name) noexcept
{
    for (const lua::Piece& piece : source) {
        if (piece.name == name) {
            return piece.text;
        }
    }
    return {};
}

/// The frame, with each of an algorithm's pieces inserted where the frame names it.
std::string filled(Pieces frame, Pieces source)
{
    std::string text;
    for (const lua::Piece& part : frame) {
        text += piece_of(source, part.name);
        text += part.text;
    }
    return text;
}

/// Lua that fills a frame's table `algorithms`, by code, which is a number or a text. `functions`
/// is the frame that makes functions of an algorithm's file, `entry(algorithm)` a table entry made
/// of them. Each file gets a block of its own, because all files use the same function names.
std::string table_of(
    const std::bitset<algorithm_count>& algorithms, Pieces functions,
    std::string_view (*entry)(Algorithm) noexcept, bool numbers)
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
        text +=
            "algorithms[" + (numbers ? std::to_string(i) : "'" + std::to_string(i) + "'") + "] = ";
        text += entry(static_cast<Algorithm>(i));
        text += "\n";
    }
    return text + "end\n";
}

std::string with_algorithms(Pieces frame, std::string_view table)
{
    std::vector<lua::Piece> pieces(std::begin(lua::block), std::end(lua::block));
    pieces.push_back({ "algorithms", table });
    return filled(frame, pieces);
}

/// The keys and numbers of a sequence's limits: a request has the keys of all limits, then those of
/// their blocks.
class SequenceParts {
public:
    explicit SequenceParts(std::span<const SequenceLimit> limits) : limits_(limits.size())
    {
        for (const SequenceLimit& limit : limits) {
            keys_ += limit.blocks ? 2 : 1;
            stride_ += numbers_of(limit.algorithm) * sizeof(double);
        }
    }

    std::string begin() const
    {
        return "local keys, limits, stride = " + std::to_string(keys_) + ", "
            + std::to_string(limits_) + ", " + std::to_string(stride_) + "\n"
            + std::string(piece_of(lua::sequence, "begin"));
    }

    /// The beginning of the next limit's part: reads its numbers and, if it has one, its block.
    void begin_limit(std::string& text, const SequenceLimit& limit)
    {
        text += "do\nlocal key = KEYS[first + " + std::to_string(begun_) + "]\n";
        text += "local answer_index = request * limits + " + std::to_string(++begun_) + "\n";
        text += "local numbers_from = request * stride + " + std::to_string(at_ + 1) + "\n";
        text += piece_of(lua::sequence, "limit");
        if (counts_at_one_time(limit.algorithm)) {
            text += "local holder, holder_at = numbers, numbers_from + 40\n";
        }
        if (limit.blocks) {
            text += "local block_key = KEYS[first + " + std::to_string(limits_ + blocks_++) + "]\n";
            text += piece_of(lua::sequence, "block");
            text += piece_of(lua::block, "read");
        }
        at_ += numbers_of(limit.algorithm) * sizeof(double);
    }

private:
    std::size_t limits_;
    std::size_t keys_ = 0;
    std::size_t stride_ = 0;  // bytes of the numbers of a request
    std::size_t begun_ = 0;
    std::size_t blocks_ = 0;
    std::size_t at_ = 0;
};

/// Whether a function begins with the limit of this index, and includes all after it: more limits
/// do not fit in the local variables of one function.
bool begins_function(std::size_t index) noexcept
{
    constexpr std::size_t limits = 6;
    return index > 0 && index % limits == 0;
}

/// A sequence of one limit that counts each cost even if it exceeds the limit.
std::string charging_script(Algorithm algorithm, bool report)
{
    const Pieces source = source_of(algorithm);
    const SequenceLimit limit{ algorithm };
    SequenceParts parts({ &limit, 1 });
    std::string text = parts.begin();
    parts.begin_limit(text, limit);
    text += piece_of(source, "check");
    text += piece_of(source, "charge");
    text += "granted = true\n";
    text += piece_of(lua::sequence, "commit");
    text += report ? piece_of(source, "before") : "local before = 0\n";
    text += piece_of(source, "commit");
    if (report) {
        text += piece_of(source, "beyond");
    }
    text += piece_of(lua::sequence, "answer");
    text += "end\n";
    text += piece_of(lua::sequence, "end");
    return text;
}

}  // namespace

std::string sequence_script(std::span<const SequenceLimit> limits)
{
    SequenceParts parts(limits);
    std::string text = parts.begin();
    const auto add = [&text](Pieces source, std::string_view name) {
        text += piece_of(source, name);
    };
    for (std::size_t i = 0; i < limits.size(); ++i) {
        const SequenceLimit& limit = limits[i];
        if (begins_function(i)) {
            text += "local function further()\n";
        }
        parts.begin_limit(text, limit);
        add(source_of(limit.algorithm), "check");
        if (limit.blocks) {
            add(lua::block, "apply");
        }
        if (!limit.shadow) {
            add(lua::sequence, "enforce");
        }
    }
    for (std::size_t i = limits.size(); i-- > 0;) {
        add(lua::sequence, "commit");
        if (limits[i].blocks) {
            add(lua::sequence, "block_commit");
        }
        add(source_of(limits[i].algorithm), "before");
        add(source_of(limits[i].algorithm), "commit");
        add(lua::sequence, "answer");
        text += "end\n";
        if (begins_function(i)) {
            text += "end\nfurther()\n";
        }
    }
    add(lua::sequence, "end");
    return text;
}

std::string single_script(Algorithm algorithm, bool blocks)
{
    const SequenceLimit limit{ algorithm, false, blocks };
    return sequence_script({ &limit, 1 });
}

std::string charge_script(Algorithm algorithm)
{
    return charging_script(algorithm, false);
}

std::string report_script(Algorithm algorithm)
{
    return charging_script(algorithm, true);
}

std::string statement_script()
{
    const SequenceLimit limit{ Algorithm::concurrency };
    return sequence_script({ &limit, 1 });
}

std::string block_script()
{
    return std::string(piece_of(lua::block, "record")) + std::string(piece_of(lua::block, "state"));
}

std::string several_script(std::span<const Algorithm> algorithms)
{
    std::bitset<algorithm_count> used;
    for (const Algorithm algorithm : algorithms) {
        used.set(static_cast<std::size_t>(algorithm));
    }
    const auto entry = [](Algorithm algorithm) noexcept -> std::string_view {
        if (counts_at_one_time(algorithm)) {
            return "{ check = check, commit = commit, exact = true }";
        }
        return keeps_arrival_time(algorithm)
            ? "{ check = check, commit = commit, by_capacity = true }"
            : "{ check = check, commit = commit }";
    };
    return with_algorithms(lua::several, table_of(used, lua::functions, entry, false));
}

std::string peek_script(std::span<const Algorithm> algorithms)
{
    return std::string(lua::peek) + several_script(algorithms);
}

std::string refund_script()
{
    std::bitset<algorithm_count> refundable;
    refundable.set().reset(static_cast<std::size_t>(Algorithm::concurrency));
    constexpr lua::Piece refund_alone[] = { { "refund", "" } };
    const auto entry = [](Algorithm) noexcept { return std::string_view("refund"); };
    return with_algorithms(lua::refund, table_of(refundable, refund_alone, entry, true));
}

}  // namespace ratelimit

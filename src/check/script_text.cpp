#include "check/script_text.h"

#include "check/script_call.h"

#include <algorithm>
#include <bitset>
#include <vector>

#include "lua_scripts.h"

namespace ratelimit {

namespace {

using Pieces = std::span<const lua::Piece>;
using std::to_string;

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
    const auto found = std::ranges::find(source, name, &lua::Piece::name);
    return found == source.end() ? std::string_view{} : found->text;
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

/// Lua that fills a frame's table `algorithms`, by code. `functions` is the frame that makes
/// functions of an algorithm's file, `entry(algorithm)` a table entry made of them. Each file gets
/// a block of its own, because all files use the same function names.
std::string table_of(
    const std::bitset<algorithm_count>& algorithms, Pieces functions,
    std::string_view (*entry)(Algorithm) noexcept)
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
        text += "algorithms[" + to_string(i) + "] = ";
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

/// The keys, numbers and answers of a sequence's limits: a request has the keys of all limits, then
/// those of their blocks.
class SequenceParts {
public:
    /// `whole`: the answers have all numbers.
    SequenceParts(std::span<const SequenceLimit> limits, bool whole)
        : limits_(limits), block_key_(limits.size()), whole_(whole)
    {
        for (const SequenceLimit& limit : limits) {
            reads_ += is_read(limit) ? 1 : 0;
            holders_ += counts_at_one_time(limit.algorithm) ? 1 : 0;
            answers_ += answer_of(limit);
            blocks_ += limit.blocks ? 1 : 0;
        }
        block_value_ = reads_;
        reads_ += blocks_;
    }

    std::string begin() const
    {
        const std::string format(limits_.size() * numbers_of_limit, 'd');
        std::string text = "local keys, stride = " + to_string(limits_.size() + blocks_) + ", "
            + to_string(format.size() * sizeof(double)) + "\n";
        text += "local form = '<" + format + "'\n";
        text += "local shared = { struct.unpack(form, ARGV[1]) }\n";
        text += piece_of(lua::sequence, "begin");
        if (reads_ > 0) {
            // Only requests that share a key need it.
            text += "local value_of\nif #KEYS > keys then\n";
            text += lua::value;
            text += "end\n";
            text += wanted();
            text += piece_of(lua::sequence, "values");
        }
        text += piece_of(lua::sequence, "request");
        text += "shared = { struct.unpack(form, ARGV[1], request * stride + 1) }\n";
        text += piece_of(lua::sequence, "admitted");
        return text;
    }

    /// The beginning of the next limit's part: its numbers, its state and, if it has one, its
    /// block.
    void begin_limit(std::string& text, const SequenceLimit& limit)
    {
        text += "do\nlocal key = KEYS[first + " + to_string(begun_) + "]\n";
        text += "local answer_at = request * " + to_string(answers_) + " + " + to_string(answer_)
            + "\n";
        const std::size_t at = begun_ * numbers_of_limit;
        text += "local now, quota, window, param, cost = ";
        for (std::size_t i = 1; i <= numbers_of_limit; ++i) {
            text += "shared[" + to_string(at + i) + (i < numbers_of_limit ? "], " : "]\n");
        }
        text += piece_of(lua::sequence, "limit");
        if (counts_at_one_time(limit.algorithm)) {
            text += "local holder, holder_at = ARGV[2], (request * " + to_string(holders_) + " + "
                + to_string(holder_++) + ") * 32 + 1\n";
        }
        if (limit.blocks) {
            text += "local block_key = KEYS[first + " + to_string(block_key_++) + "]\n";
            text += piece_of(lua::sequence, "block");
            read_value(text, "record", "block_key", block_value_++, piece_of(lua::block, "fetch"));
            text += piece_of(lua::block, "read");
        }
        if (is_read(limit)) {
            read_value(
                text, "stored", "key", value_++, piece_of(source_of(limit.algorithm), "read"));
        }
        answer_ += answer_of(limit);
        ++begun_;
    }

    bool is_short(const SequenceLimit& limit) const noexcept
    {
        return answer_of(limit) < whole_answer;
    }

private:
    /// Whether the state is among those that are read at once.
    static bool is_read(const SequenceLimit& limit) noexcept
    {
        return !piece_of(source_of(limit.algorithm), "read").empty();
    }
    std::size_t answer_of(const SequenceLimit& limit) const noexcept
    {
        return whole_ ? whole_answer : answer_numbers(limit.algorithm, limit.blocks);
    }
    /// Lua that makes the list of keys whose values are read at once.
    std::string wanted() const
    {
        const std::string reads = "local reads = " + to_string(reads_) + "\n";
        if (reads_ == limits_.size() + blocks_) {
            return reads + "local wanted = KEYS\n";
        }
        std::string text = reads + "local wanted = {}\nfor first = 1, #KEYS, keys do\n";
        for (std::size_t key = 0; key < limits_.size() + blocks_; ++key) {
            if (key >= limits_.size() || is_read(limits_[key])) {
                text += "wanted[#wanted + 1] = KEYS[first + " + to_string(key) + "]\n";
            }
        }
        return text + "end\n";
    }
    void read_value(
        std::string& text, const std::string& name, const std::string& key, std::size_t index,
        std::string_view again) const
    {
        text +=
            "local " + name + " = values[request * reads + " + to_string(index + 1) + "] or ''\n";
        text += "if again and again[" + key + "] then\n";
        text += again;
        text += "end\n";
    }

    std::span<const SequenceLimit> limits_;
    std::size_t blocks_ = 0;
    std::size_t reads_ = 0;    // values that are read at once, of a request
    std::size_t holders_ = 0;  // of a request
    std::size_t answers_ = 0;  // numbers of the answers to a request
    // Of the next limit.
    std::size_t begun_ = 0;
    std::size_t block_key_;
    std::size_t value_ = 0;
    std::size_t block_value_ = 0;
    std::size_t holder_ = 0;
    std::size_t answer_ = 0;
    const bool whole_;
};

/// Whether a function begins with the limit of this index, and includes all after it: more limits
/// do not fit in the local variables of one function.
bool begins_function(std::size_t index) noexcept
{
    constexpr std::size_t limits = 6;
    return index > 0 && index % limits == 0;
}

/// `all`: counts also the costs beyond the limit, and tells how many of the units those are.
std::string script_of(std::span<const SequenceLimit> limits, bool all)
{
    SequenceParts parts(limits, all);
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
        if (all) {
            add(source_of(limit.algorithm), "charge");
            text += "granted = true\n";
        } else if (!limit.shadow) {
            add(lua::sequence, "enforce");
        }
    }
    for (std::size_t i = limits.size(); i-- > 0;) {
        const Pieces source = source_of(limits[i].algorithm);
        add(lua::sequence, "commit");
        if (parts.is_short(limits[i])) {
            add(source, "commit");
            add(source, "short");
        } else {
            add(lua::sequence, "verdict");
            if (limits[i].blocks) {
                add(lua::sequence, "block_commit");
            }
            text += all ? "local before = 0\n" : piece_of(source, "before");
            add(source, "commit");
            add(source, "numbers");
            text += all ? piece_of(source, "beyond") : "";
            add(lua::sequence, "answer");
        }
        text += "end\n";
        if (begins_function(i)) {
            text += "end\nfurther()\n";
        }
    }
    add(lua::sequence, "end");
    return text;
}

}  // namespace

redis::BatchFormat sequence_format(std::span<const SequenceLimit> limits) noexcept
{
    redis::BatchFormat all{ .keys = 0, .shared_bytes = sizeof(double) };
    for (const SequenceLimit& limit : limits) {
        const auto each = single_format(limit.algorithm, limit.blocks);
        all.keys += each.keys;
        all.reply_bytes += each.reply_bytes;
        all.numbers += each.numbers;
        all.own_numbers = all.own_numbers || each.own_numbers;
    }
    return all;
}

std::string sequence_script(std::span<const SequenceLimit> limits)
{
    return script_of(limits, false);
}

std::string single_script(Algorithm algorithm, bool blocks)
{
    const SequenceLimit limit{ algorithm, false, blocks };
    return sequence_script({ &limit, 1 });
}

std::string charge_script(Algorithm algorithm)
{
    const SequenceLimit limit{ algorithm };
    return script_of({ &limit, 1 }, true);
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
    return "local value_of\n" + std::string(lua::value)
        + with_algorithms(lua::several, table_of(used, lua::functions, entry));
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
    return with_algorithms(lua::refund, table_of(refundable, refund_alone, entry));
}

}  // namespace ratelimit

#include "rehearse/log/log_stream.h"

#include <utility>

namespace ratelimit::rehearse {

std::string_view LogStream::first_line()
{
    if (!first_) {
        std::string_view line;
        first_result_ = reader_.next(line);
        first_ = line;
    }
    return first_result_ == LineReader::Result::line ? std::string_view(*first_)
                                                     : std::string_view();
}

bool LogStream::next(Record& out)
{
    constexpr std::size_t most_lines = 100;
    constexpr std::size_t most_bytes = 65'536;  // of one line
    for (;;) {
        std::string_view line;
        const auto first = std::exchange(first_, std::nullopt);
        const LineReader::Result result = first ? first_result_ : reader_.next(line);
        line = first ? std::string_view(*first) : line;
        if (result == LineReader::Result::end) {
            return false;
        }
        if (result == LineReader::Result::line && line.empty()) {
            continue;  // a blank line is no request
        }
        ++counts_.lines;
        if (result == LineReader::Result::line && format_->read(line, out)) {
            return true;
        }
        if (result == LineReader::Result::too_long) {
            ++counts_.too_long;
            continue;
        }
        ++counts_.broken;
        if (counts_.broken_lines.size() < most_lines) {
            counts_.broken_lines.emplace_back(line.substr(0, most_bytes));
        }
    }
}

}  // namespace ratelimit::rehearse

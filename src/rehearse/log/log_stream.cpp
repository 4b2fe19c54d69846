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

void LogStream::count_broken(std::string_view line)
{
    constexpr std::size_t shown = 120;
    constexpr std::size_t most_lines = 100;
    constexpr std::size_t most_bytes = 4096;  // of one line
    ++counts_.broken;
    if (counts_.first_broken.empty()) {
        counts_.first_broken = line.substr(0, shown);
    }
    if (counts_.broken_lines.size() < most_lines && line.size() <= most_bytes) {
        counts_.broken_lines.emplace_back(line);
    }
}

bool LogStream::next(Record& out)
{
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
        ++counts_.skipped;
        if (result == LineReader::Result::too_long) {
            ++counts_.too_long;
        } else {
            count_broken(line);
        }
    }
}

}  // namespace ratelimit::rehearse

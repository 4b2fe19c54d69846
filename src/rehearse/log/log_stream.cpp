#include "rehearse/log/log_stream.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

/// Without the zeros of a file that was cut while nginx had it open, and without the mark of a file
/// that an editor has written; also of later lines, since a log can be put together from several.
std::string_view without_start(std::string_view line) noexcept
{
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    line.remove_prefix(std::min(line.find_first_not_of('\0'), line.size() - 1));
    line.remove_prefix(line.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    return line;
}

}  // namespace

/// The next line of the file that is neither blank nor too long. False: the log has ended.
bool LogStream::read_line(std::string_view& line)
{
    while (!ended_) {
        const LineReader::Result result = reader_.next(line);
        ended_ = result == LineReader::Result::end;
        if (result == LineReader::Result::too_long) {
            ++counts_.lines;
            ++counts_.too_long;
        } else if (!ended_ && !line.empty()) {
            line = without_start(line);
            return true;
        }
    }
    return false;
}

const std::vector<std::string>& LogStream::first_lines()
{
    constexpr std::size_t most = 100;
    std::string_view line;
    while (first_.size() < most && read_line(line)) {
        first_.emplace_back(line);
    }
    return first_;
}

bool LogStream::next(Record& out)
{
    constexpr std::size_t most_lines = 100;
    constexpr std::size_t most_bytes = 65'536;  // of one line
    for (;;) {
        std::string_view line;
        if (first_used_ < first_.size()) {
            line = first_[first_used_++];
        } else if (!read_line(line)) {
            return false;
        }
        ++counts_.lines;
        if (format_->read(line, out)) {
            return true;
        }
        ++counts_.broken;
        if (counts_.broken_lines.size() < most_lines) {
            counts_.broken_lines.emplace_back(line.substr(0, most_bytes));
        }
    }
}

}  // namespace ratelimit::rehearse

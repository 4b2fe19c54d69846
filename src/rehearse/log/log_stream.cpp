#include "rehearse/log/log_stream.h"

#include <algorithm>

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

/// Reads up to the next line that is not broken.
bool LogStream::read(Record& out)
{
    for (;;) {
        std::string_view line;
        LineReader::Result result{};
        if (first_) {
            result = first_result_;
            line = *first_;
        } else {
            result = reader_.next(line);
        }
        if (result == LineReader::Result::end) {
            return false;
        }
        if (result == LineReader::Result::line && line.empty()) {
            first_.reset();
            continue;  // a blank line is no request
        }
        ++counts_.lines;
        const bool good = result == LineReader::Result::line && format_->read(line, out);
        if (!good) {
            ++counts_.skipped;
            if (result == LineReader::Result::too_long) {
                ++counts_.too_long;
            } else {
                count_broken(line);
            }
        }
        first_.reset();
        if (good) {
            return true;
        }
    }
}

/// Reads a line that is to be judged by its time.
bool LogStream::read_next(Record& out)
{
    if (!first_few_.empty()) {
        out = std::move(first_few_.front());
        first_few_.pop_front();
        return true;
    }
    ended_ = ended_ || !read(out);
    return !ended_;
}

/// The lines that jumped ahead are right.
void LogStream::accept_ahead()
{
    if (newest_ >= 0) {
        passed_ = std::exchange(ahead_, {});
        return;
    }
    // The first lines of the log: the earliest of them is right, and the others are judged by it.
    newest_ =
        std::min_element(ahead_.begin(), ahead_.end(), [](const auto& left, const auto& right) {
            return left.end < right.end;
        })->end;
    first_few_ = std::exchange(ahead_, {});
}

void LogStream::drop_ahead()
{
    counts_.wrong_time += ahead_.size();
    counts_.skipped += ahead_.size();
    ahead_.clear();
}

bool LogStream::next(Record& out)
{
    if (!in_order_) {
        return read(out);
    }
    for (;;) {
        if (!passed_.empty()) {
            out = std::move(passed_.front());
            passed_.pop_front();
            newest_ = std::max(newest_, out.end);
            return true;
        }
        if (!read_next(out)) {
            if (ahead_.empty()) {
                return false;
            }
            accept_ahead();
            continue;
        }
        if (newest_ < 0 || out.end - newest_ > jump) {
            ahead_.push_back(std::move(out));
            out = {};
            if (ahead_.size() >= most_ahead) {
                accept_ahead();
            }
            continue;
        }
        if (!ahead_.empty() && out.end < ahead_.front().end - bound_) {
            drop_ahead();
        } else if (!ahead_.empty()) {
            accept_ahead();
        }
        newest_ = std::max(newest_, out.end);
        return true;
    }
}

}  // namespace ratelimit::rehearse

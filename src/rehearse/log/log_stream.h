#pragma once

#include "rehearse/log/line_reader.h"
#include "rehearse/log/log_format.h"

#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace ratelimit::rehearse {

/// How many lines were read, and what became of those that were not used.
struct LineCounts {
    std::uint64_t lines = 0;
    std::uint64_t skipped = 0;  // all that were not used
    std::uint64_t broken = 0;   // of these: the format or the time does not fit
    std::uint64_t too_long = 0;
    std::uint64_t wrong_time = 0;           // a few lines far ahead of those around them
    std::uint64_t late = 0;                 // further behind than the bound
    std::uint64_t crowded = 0;              // behind by less, but more lines came than can wait
    std::int64_t latest = 0;                // us: how far the furthest of the late lines was behind
    std::string first_broken;               // the start of the first broken line
    std::vector<std::string> broken_lines;  // the first ones, to find out which format they have
};

/// The records of one log, about in the order in which they were logged. Lines that jump ahead by
/// more than an hour are used only if no line after them is back where the log was: one wrong time
/// would make all later lines late.
class LogStream {
public:
    LogStream(const std::string& path, LineCounts& counts) : reader_(path), counts_(counts) {}

    /// The first line, which stays to be read; empty: there is none.
    std::string_view first_line();

    /// Call before `next`. The format must live as long as the stream. `bound`: how far lines may
    /// be out of order, in microseconds.
    void use(LogFormat& format, std::int64_t bound)
    {
        format_ = &format;
        bound_ = bound;
    }

    /// The same where lines may be out of order by any time, and none is wrong.
    void use_all(LogFormat& format)
    {
        format_ = &format;
        in_order_ = false;
    }

    /// False: the log has ended.
    bool next(Record& out);

    const LineReader& reader() const noexcept { return reader_; }

private:
    static constexpr std::int64_t jump = 3'600'000'000;  // us
    static constexpr std::size_t most_ahead = 64;        // lines

    bool read(Record& out);
    void count_broken(std::string_view line);
    bool read_next(Record& out);
    void accept_ahead();
    void drop_ahead();

    LineReader reader_;
    LineCounts& counts_;
    LogFormat* format_ = nullptr;
    std::int64_t bound_ = 0;
    bool in_order_ = true;  // about
    std::optional<std::string> first_;
    LineReader::Result first_result_ = LineReader::Result::end;
    bool ended_ = false;
    std::deque<Record> ahead_;      // lines that jumped ahead
    std::deque<Record> passed_;     // lines to return next
    std::deque<Record> first_few_;  // to be judged again, with a time to compare them with
    std::int64_t newest_ = -1;      // Record::end; -1: no line has been accepted
};

}  // namespace ratelimit::rehearse

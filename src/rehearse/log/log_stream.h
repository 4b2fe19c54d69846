#pragma once

#include "rehearse/log/line_reader.h"
#include "rehearse/log/log_format.h"

#include <memory>
#include <vector>

namespace ratelimit::rehearse {

/// How many lines were read, and what became of those that were not used.
struct LineCounts {
    std::uint64_t lines = 0;
    std::uint64_t broken = 0;  // the format or the time does not fit
    std::uint64_t too_long = 0;
    std::uint64_t late = 0;                 // further behind than the bound
    std::uint64_t crowded = 0;              // behind by less, but more lines came than can wait
    std::int64_t latest = 0;                // us: how far the furthest of the late lines was behind
    std::vector<std::string> broken_lines;  // the first ones, to find out which format they have

    /// All that were not used.
    std::uint64_t skipped() const noexcept { return broken + too_long + late + crowded; }
};

/// The records of one log, in the order of its lines.
class LogStream {
public:
    LogStream(const std::string& path, LineCounts& counts) : reader_(path), counts_(counts) {}

    /// The first lines that are neither blank nor too long, which stay to be read.
    const std::vector<std::string>& first_lines();

    /// Call before `next`. The format must live as long as the stream.
    void use(LogFormat& format) { format_ = &format; }

    /// Reads up to the next line that is not broken. False: the log has ended.
    bool next(Record& out);

    const LineReader& reader() const noexcept { return reader_; }

private:
    bool read_line(std::string_view& line);

    LineReader reader_;
    LineCounts& counts_;
    LogFormat* format_ = nullptr;
    std::vector<std::string> first_;
    std::size_t first_used_ = 0;  // of them
    bool ended_ = false;
};
using LogStreams = std::vector<std::unique_ptr<LogStream>>;

}  // namespace ratelimit::rehearse

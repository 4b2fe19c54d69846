#pragma once

#include "rehearse/conf/input_error.h"
#include "rehearse/log/log_stream.h"

#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// All records of several logs in the order of their times, however far they are out of it: an
/// external merge sort. Records of the same time keep the order in which they were read. What does
/// not fit into the memory of one run is kept in a temporary file.
class SortedRecords {
public:
    /// Reads the logs while `go_on` returns true; it is called before each record. `run_bytes`: of
    /// one run in memory. Throws InputError if there is no temporary file.
    template <class GoOn>
    SortedRecords(
        LogStreams& streams, LogFormat& format, GoOn&& go_on,
        std::size_t run_bytes = default_run_bytes)
        : run_bytes_(run_bytes)
    {
        Record record;
        for (const auto& stream : streams) {
            stream->use(format);
            while (go_on() && stream->next(record)) {
                add(record);
            }
        }
        finish();
    }

    /// The next record, which is valid until the next call; null: there is none.
    const Record* next();

private:
    static constexpr std::size_t default_run_bytes = std::size_t{ 128 } << 20U;

    struct Entry {
        std::int64_t time;
        std::size_t start;  // of its text in text_
    };
    /// A part of the temporary file, and what has been read of it.
    struct Run {
        std::int64_t at;
        std::int64_t end;
        std::string buffer;
        std::size_t used = 0;
        Record record;
    };

    void add(const Record& record);
    void sort_run();
    void write_run();
    void finish();
    bool read(Run& run);
    bool fill(Run& run, std::size_t wanted);

    std::size_t run_bytes_;
    std::string text_;  // of the run that is in memory: records as they are stored
    std::vector<Entry> entries_;
    std::size_t next_entry_ = 0;
    File file_;
    std::int64_t file_size_ = 0;
    std::vector<Run> runs_;
    std::vector<std::size_t> open_;  // indices of the runs that have not ended, in their order
    Record current_;
};

}  // namespace ratelimit::rehearse

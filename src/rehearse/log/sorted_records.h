#pragma once

#include "rehearse/conf/input_error.h"
#include "rehearse/log/log_stream.h"

#include <vector>

namespace ratelimit::rehearse {

/// All records of several logs in the order of IsEarlier, however far they are out of it: an
/// external merge sort. All runs but the last are temporary files. Equal records keep the order in
/// which they were read.
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
    static constexpr std::size_t default_run_bytes = std::size_t{ 64 } << 20U;

    struct Run {
        File file;     // null: its records are in memory
        Record first;  // that was not returned
    };

    void add(const Record& record);
    void write_run();
    void open_run(File file);
    void finish();
    bool read(Run& run);

    std::size_t run_bytes_;
    std::size_t bytes_ = 0;        // of records_
    std::vector<Record> records_;  // of the run that is in memory
    std::size_t at_ = 0;           // the next of them
    std::vector<Run> runs_;        // those that have not ended
    Record current_;
};

}  // namespace ratelimit::rehearse

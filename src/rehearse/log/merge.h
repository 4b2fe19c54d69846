#pragma once

#include "rehearse/log/log_stream.h"

#include <set>
#include <vector>

namespace ratelimit::rehearse {

/// The records of several logs in the order of IsEarlier. Equal ones keep the order in which they
/// were read. A log can be out of order by a bound; lines that are further behind are skipped and
/// counted.
///
/// A record waits until each log has been read up to its time and the bound. If more wait than may,
/// the earliest goes at once.
class Merge {
public:
    /// `bound` in microseconds. The format must live as long as this.
    Merge(LogStreams& streams, LogFormat& format, std::int64_t bound, LineCounts& counts);

    /// The next record, which is valid until the next call; null: there is none.
    const Record* next();

private:
    using Waiting = std::multiset<Record, IsEarlier>;
    struct Source {
        LogStream* stream;
        std::int64_t read_up_to;  // the newest time that was read
    };

    static constexpr std::size_t most_waiting = 1'048'576;               // records
    static constexpr std::size_t most_bytes = std::size_t{ 64 } << 20U;  // of all that wait

    bool read_one();
    void count_late(std::int64_t behind) noexcept;

    std::vector<Source> sources_;  // those that have not ended
    std::int64_t bound_;
    LineCounts& counts_;
    Waiting waiting_;
    // Their memory is used again. The last one is the record that was returned last.
    std::vector<Waiting::node_type> free_;
    std::size_t bytes_ = 0;       // of all that wait
    std::int64_t returned_ = -1;  // the time of the last record that was returned
};

}  // namespace ratelimit::rehearse

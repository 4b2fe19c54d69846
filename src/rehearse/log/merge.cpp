#include "rehearse/log/merge.h"

#include <algorithm>

namespace ratelimit::rehearse {

Merge::Merge(LogStreams& streams, LogFormat& format, std::int64_t bound, LineCounts& counts)
    : bound_(bound), counts_(counts)
{
    for (const auto& stream : streams) {
        stream->use(format);
        sources_.push_back({ stream.get(), -1 });
    }
}

/// Reads a record of the log that is furthest behind, if it may be an earlier one than those that
/// wait.
bool Merge::read_one()
{
    const auto source = std::min_element(
        sources_.begin(), sources_.end(),
        [](const Source& left, const Source& right) { return left.read_up_to < right.read_up_to; });
    if (source == sources_.end()
        || (!waiting_.empty()
            && (waiting_.size() >= most_waiting || bytes_ >= most_bytes
                || waiting_.begin()->time <= source->read_up_to - bound_))) {
        return false;
    }
    if (free_.empty()) {
        free_.push_back(waiting_.extract(waiting_.emplace()));
    }
    Record& record = free_.back().value();
    if (!source->stream->next(record)) {
        sources_.erase(source);
        return true;
    }
    source->read_up_to = std::max(source->read_up_to, record.time);
    if (record.time < returned_) {
        count_late(source->read_up_to - record.time);
        return true;
    }
    bytes_ += record.size();
    waiting_.insert(waiting_.end(), std::move(free_.back()));
    free_.pop_back();
    return true;
}

/// A record that is not behind by more than the bound is late only if too many others waited.
void Merge::count_late(std::int64_t behind) noexcept
{
    if (behind <= bound_) {
        ++counts_.crowded;
        return;
    }
    ++counts_.late;
    counts_.latest = std::max(counts_.latest, behind);
}

const Record* Merge::next()
{
    if (!free_.empty()) {
        free_.back().value().shrink();
    }
    while (read_one()) {
    }
    if (waiting_.empty()) {
        return nullptr;
    }
    free_.push_back(waiting_.extract(waiting_.begin()));
    const Record& record = free_.back().value();
    bytes_ -= record.size();
    returned_ = record.time;
    return &record;
}

}  // namespace ratelimit::rehearse

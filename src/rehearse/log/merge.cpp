#include "rehearse/log/merge.h"

#include <algorithm>

namespace ratelimit::rehearse {

Merge::Merge(
    std::vector<std::unique_ptr<LogStream>>& streams, LogFormat& format, std::int64_t bound,
    LineCounts& counts)
    : bound_(bound), counts_(counts)
{
    for (const auto& stream : streams) {
        stream->use(format);
        sources_.push_back({ stream.get(), -1 });
    }
}

/// Whether an earlier record than the first of the heap may still come.
bool Merge::must_read() const noexcept
{
    if (sources_.empty()) {
        return false;
    }
    if (heap_.empty()) {
        return true;
    }
    if (heap_.size() >= most_waiting || bytes_ >= most_bytes) {
        return false;
    }
    const auto read_up_to = std::min_element(
        sources_.begin(), sources_.end(),
        [](const Source& left, const Source& right) { return left.read_up_to < right.read_up_to; });
    return heap_.front().time > read_up_to->read_up_to - bound_;
}

/// Reads a record of the log that is furthest behind.
void Merge::read_one()
{
    const auto source = std::min_element(
        sources_.begin(), sources_.end(),
        [](const Source& left, const Source& right) { return left.read_up_to < right.read_up_to; });
    if (source->stream->next(read_)) {
        add(std::move(read_), *source);
    } else {
        sources_.erase(source);
    }
}

void Merge::add(Record&& record, Source& source)
{
    source.read_up_to = std::max(source.read_up_to, record.time);
    if (record.time < returned_) {
        count_late(source.read_up_to - record.time);
        return;
    }
    std::uint32_t slot = 0;
    if (free_.empty()) {
        slot = static_cast<std::uint32_t>(slots_.size());
        slots_.emplace_back();
    } else {
        slot = free_.back();
        free_.pop_back();
    }
    bytes_ += record.size();
    heap_.push_back({ record.time, order_++, slot });
    std::swap(slots_[slot], record);  // the other one's memory is used again
    std::push_heap(heap_.begin(), heap_.end());
}

/// A record that is not behind by more than the bound is late only if the heap was full.
void Merge::count_late(std::int64_t behind) noexcept
{
    ++counts_.skipped;
    if (behind <= bound_) {
        ++counts_.crowded;
        return;
    }
    ++counts_.late;
    counts_.latest = std::max(counts_.latest, behind);
}

const Record* Merge::next()
{
    while (must_read()) {
        read_one();
    }
    if (heap_.empty()) {
        return nullptr;
    }
    std::pop_heap(heap_.begin(), heap_.end());
    const std::uint32_t slot = heap_.back().slot;
    heap_.pop_back();
    std::swap(current_, slots_[slot]);
    slots_[slot].shrink();
    free_.push_back(slot);
    bytes_ -= current_.size();
    returned_ = current_.time;
    return &current_;
}

}  // namespace ratelimit::rehearse

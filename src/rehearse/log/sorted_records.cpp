#include "rehearse/log/sorted_records.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace ratelimit::rehearse {

namespace {

/// How a record is stored: this, then the length of each value, then the values.
struct Head {
    std::int64_t time;
    std::int64_t end;
    std::uint32_t values;
    std::uint32_t bytes;
};

void store(const Record& record, std::string& out)
{
    const Head head{ record.time, record.end, static_cast<std::uint32_t>(record.count()),
                     static_cast<std::uint32_t>(record.size()) };
    out.append(reinterpret_cast<const char*>(&head), sizeof(head));
    for (std::size_t i = 0; i < record.count(); ++i) {
        const auto length = static_cast<std::uint32_t>(record.value(i).size());
        out.append(reinterpret_cast<const char*>(&length), sizeof(length));
    }
    out += record.text();
}

Head head_at(const char* stored) noexcept
{
    Head head{};
    std::memcpy(&head, stored, sizeof(head));
    return head;
}

std::size_t size_of(const Head& head) noexcept
{
    return sizeof(head) + std::size_t{ head.values } * sizeof(std::uint32_t) + head.bytes;
}

void restore(const char* stored, Record& out)
{
    const Head head = head_at(stored);
    out.clear();
    out.time = head.time;
    out.end = head.end;
    const char* lengths = stored + sizeof(head);
    const char* value = lengths + std::size_t{ head.values } * sizeof(std::uint32_t);
    for (std::uint32_t i = 0; i < head.values; ++i) {
        std::uint32_t length = 0;
        std::memcpy(&length, lengths + std::size_t{ i } * sizeof(length), sizeof(length));
        out.add({ value, length });
        value += length;
    }
}

}  // namespace

void SortedRecords::add(const Record& record)
{
    entries_.push_back({ record.time, text_.size() });
    store(record, text_);
    if (text_.size() + entries_.size() * sizeof(Entry) >= run_bytes_) {
        write_run();
    }
}

void SortedRecords::sort_run()
{
    std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& left, const Entry& right) {
        return left.time < right.time;
    });
}

void SortedRecords::write_run()
{
    if (file_ == nullptr) {
        file_.reset(std::tmpfile());
        if (file_ == nullptr) {
            fail_by_errno("cannot create a temporary file");
        }
    }
    sort_run();
    for (const Entry& entry : entries_) {
        const char* stored = text_.data() + entry.start;
        const std::size_t size = size_of(head_at(stored));
        if (std::fwrite(stored, 1, size, file_.get()) != size) {
            fail_by_errno("cannot write a temporary file");
        }
    }
    if (std::fflush(file_.get()) != 0) {
        fail_by_errno("cannot write a temporary file");
    }
    const auto size = static_cast<std::int64_t>(text_.size());
    runs_.push_back({ file_size_, file_size_ + size, {}, 0, {} });
    file_size_ += size;
    text_.clear();
    entries_.clear();
}

void SortedRecords::finish()
{
    if (runs_.empty()) {
        sort_run();
        return;
    }
    write_run();
    text_ = {};
    entries_ = {};
    for (std::size_t i = 0; i < runs_.size(); ++i) {
        if (read(runs_[i])) {
            open_.push_back(i);
        }
    }
}

/// Reads more of a run until `wanted` bytes are there. False: the run has ended.
bool SortedRecords::fill(Run& run, std::size_t wanted)
{
    constexpr std::size_t at_once = std::size_t{ 256 } << 10U;
    while (run.buffer.size() - run.used < wanted) {
        const auto left = static_cast<std::size_t>(run.end - run.at);
        if (left == 0) {
            return false;
        }
        run.buffer.erase(0, run.used);
        run.used = 0;
        const std::size_t kept = run.buffer.size();
        const std::size_t size = std::min(left, std::max(at_once, wanted));
        run.buffer.resize(kept + size);
        const ssize_t count = pread(fileno(file_.get()), run.buffer.data() + kept, size, run.at);
        if (count <= 0) {
            fail_by_errno("cannot read a temporary file");
        }
        run.buffer.resize(kept + static_cast<std::size_t>(count));
        run.at += count;
    }
    return true;
}

bool SortedRecords::read(Run& run)
{
    if (!fill(run, sizeof(Head))) {
        return false;
    }
    const std::size_t size = size_of(head_at(run.buffer.data() + run.used));
    if (!fill(run, size)) {
        return false;
    }
    restore(run.buffer.data() + run.used, run.record);
    run.used += size;
    return true;
}

const Record* SortedRecords::next()
{
    if (runs_.empty()) {
        if (next_entry_ == entries_.size()) {
            return nullptr;
        }
        restore(text_.data() + entries_[next_entry_++].start, current_);
        return &current_;
    }
    if (open_.empty()) {
        return nullptr;
    }
    // Of equal times the earlier run comes first: it was read first.
    const auto first = std::min_element(open_.begin(), open_.end(), [this](auto left, auto right) {
        return runs_[left].record.time < runs_[right].record.time;
    });
    Run& run = runs_[*first];
    std::swap(current_, run.record);
    if (!read(run)) {
        open_.erase(first);
    }
    return &current_;
}

}  // namespace ratelimit::rehearse

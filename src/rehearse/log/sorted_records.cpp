#include "rehearse/log/sorted_records.h"

#include <algorithm>

namespace ratelimit::rehearse {

void SortedRecords::add(const Record& record)
{
    records_.push_back(record);
    bytes_ += sizeof(Record) + record.count() * sizeof(std::size_t) + record.size();
    if (bytes_ >= run_bytes_) {
        write_run();
    }
}

void SortedRecords::write_run()
{
    File file(std::tmpfile());
    if (file == nullptr) {
        fail_by_errno("cannot create a temporary file");
    }
    std::stable_sort(records_.begin(), records_.end(), IsEarlier{});
    for (const Record& record : records_) {
        record.write(file.get());
    }
    if (std::fflush(file.get()) != 0 || std::ferror(file.get()) != 0) {
        fail_by_errno("cannot write a temporary file");
    }
    std::rewind(file.get());
    records_.clear();
    bytes_ = 0;
    open_run(std::move(file));
}

void SortedRecords::open_run(File file)
{
    Run run{ std::move(file), {} };
    if (read(run)) {
        runs_.push_back(std::move(run));
    }
}

/// The next record of a run. False: it has ended.
bool SortedRecords::read(Run& run)
{
    if (run.file == nullptr) {  // the last run
        const bool any = at_ < records_.size();
        run.first = any ? std::move(records_[at_++]) : Record{};
        return any;
    }
    const bool any = run.first.read(run.file.get());
    if (!any && std::ferror(run.file.get()) != 0) {
        fail_by_errno("cannot read a temporary file");
    }
    return any;
}

void SortedRecords::finish()
{
    std::stable_sort(records_.begin(), records_.end(), IsEarlier{});
    open_run(nullptr);
}

const Record* SortedRecords::next()
{
    // Of equal records that of the earlier run comes first: it was read first.
    const auto first =
        std::min_element(runs_.begin(), runs_.end(), [](const Run& left, const Run& right) {
            return IsEarlier{}(left.first, right.first);
        });
    if (first == runs_.end()) {
        return nullptr;
    }
    std::swap(current_, first->first);
    if (!read(*first)) {
        runs_.erase(first);
    }
    return &current_;
}

}  // namespace ratelimit::rehearse

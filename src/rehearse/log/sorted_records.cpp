#include "rehearse/log/sorted_records.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

bool is_earlier(const Record& left, const Record& right) noexcept
{
    return left.time < right.time;
}

}  // namespace

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
    std::stable_sort(records_.begin(), records_.end(), is_earlier);
    for (const Record& record : records_) {
        record.write(file.get());
    }
    if (std::fflush(file.get()) != 0 || std::ferror(file.get()) != 0) {
        fail_by_errno("cannot write a temporary file");
    }
    std::rewind(file.get());
    runs_.push_back({ std::move(file), {} });
    records_.clear();
    bytes_ = 0;
}

/// The next record of a run. False: it has ended.
bool SortedRecords::read(Run& run)
{
    const bool any = run.first.read(run.file.get());
    if (!any && std::ferror(run.file.get()) != 0) {
        fail_by_errno("cannot read a temporary file");
    }
    return any;
}

void SortedRecords::finish()
{
    write_run();
    records_ = {};
    std::erase_if(runs_, [](Run& run) { return !read(run); });
}

const Record* SortedRecords::next()
{
    // Of equal times the earlier run comes first: it was read first.
    const auto first =
        std::min_element(runs_.begin(), runs_.end(), [](const Run& left, const Run& right) {
            return is_earlier(left.first, right.first);
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

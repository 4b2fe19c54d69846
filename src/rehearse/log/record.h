#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// One line of a log: its time, and the values of the variables that are needed, as they are
/// written. It owns its text.
class Record {
public:
    std::int64_t time = 0;  // when its request is decided: us since the epoch
    std::int64_t end = 0;   // with concurrency=: when the request ended; else `time`

    void clear() noexcept
    {
        text_.clear();
        ends_.clear();
    }
    void add(std::string_view value)
    {
        text_ += value;
        ends_.push_back(text_.size());
    }
    std::string_view value(std::size_t index) const noexcept
    {
        const std::size_t start = index == 0 ? 0 : ends_[index - 1];
        return std::string_view(text_).substr(start, ends_[index] - start);
    }
    std::size_t count() const noexcept { return ends_.size(); }

    /// Stores it in a file of this process. Errors are the file's.
    void write(std::FILE* file) const
    {
        const Head head{ time, end, ends_.size(), text_.size() };
        std::fwrite(&head, sizeof(head), 1, file);
        if (!ends_.empty()) {
            std::fwrite(ends_.data(), sizeof(std::size_t), ends_.size(), file);
            std::fwrite(text_.data(), 1, text_.size(), file);
        }
    }
    /// Reads what `write` stored. False: the file has ended, or cannot be read.
    bool read(std::FILE* file)
    {
        Head head{};
        if (std::fread(&head, sizeof(head), 1, file) != 1) {
            return false;
        }
        time = head.time;
        end = head.end;
        ends_.resize(head.values);
        text_.resize(head.bytes);
        return head.values == 0
            || (std::fread(ends_.data(), sizeof(std::size_t), head.values, file) == head.values
                && std::fread(text_.data(), 1, head.bytes, file) == head.bytes);
    }

    /// In bytes.
    std::size_t size() const noexcept { return text_.size(); }

    /// Frees the memory of an unusually long text.
    void shrink()
    {
        constexpr std::size_t usual = 4096;
        if (text_.capacity() > usual) {
            text_ = {};
        }
    }

private:
    struct Head {
        std::int64_t time;
        std::int64_t end;
        std::size_t values;
        std::size_t bytes;
    };

    std::string text_;
    std::vector<std::size_t> ends_;  // of each value in the text
};

/// The order in which requests are decided. With concurrency= the longest of those that began at
/// the same time comes first: one that was refused at that time was answered at once.
struct IsEarlier {
    bool operator()(const Record& left, const Record& right) const noexcept
    {
        return left.time != right.time ? left.time < right.time : left.end > right.end;
    }
};

}  // namespace ratelimit::rehearse

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// One line of a log: its time, and the values of the variables that are needed, as they are
/// written. It owns its text.
class Record {
public:
    std::int64_t time = 0;  // when its request is decided: us since the epoch
    std::int64_t end = 0;   // when it was logged, which is the end of its request

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
    /// All values, one after another.
    std::string_view text() const noexcept { return text_; }
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
    std::string text_;
    std::vector<std::size_t> ends_;  // of each value in the text
};

}  // namespace ratelimit::rehearse

#pragma once

#include "rehearse/conf/conf_text.h"
#include "rehearse/log/log_format.h"
#include "rehearse/log/record.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// The request that variables are computed for, and the way on which it is followed.
class Values {
public:
    explicit Values(Escape escape) noexcept : escape_(escape) {}

    /// What `rewrite` and internal redirects change.
    struct Rewritten {
        std::string path;                   // $uri
        std::string args;                   // $args
        bool redirected = false;            // or rewritten: `internal` locations are open
        std::vector<std::string> captures;  // of the last regular expression that has matched
        std::string_view server_name;       // the first name of the server
    };

    /// A question that the log does not answer by itself, such as whether a file was there.
    struct Doubt {
        const Directive* asker;  // null: no warning names it
        std::string question;
        bool answer;
        bool is_last = false;  // the other answer was tried before
    };
    using Answers = std::vector<Doubt>;

    /// Begins the next request; `record` must live as long as it.
    void begin(const Record& record) noexcept { record_ = &record; }
    /// Begins a course of it: the likely one of those with these answers, which must live as long.
    /// `is_for_bounds`: where counts are not known, both answers are tried.
    void begin_courses(std::span<const Doubt> given, bool is_for_bounds = false)
    {
        is_for_bounds_ = is_for_bounds;
        given_ = given;
        doubts_.clear();
        restart();
    }
    /// Begins the next course with these answers; false: there is none.
    bool next_course()
    {
        while (!doubts_.empty() && doubts_.back().is_last) {
            doubts_.pop_back();
        }
        if (doubts_.empty()) {
            return false;
        }
        doubts_.back().answer = !doubts_.back().answer;
        doubts_.back().is_last = true;
        restart();
        return true;
    }
    bool is_for_bounds() const noexcept { return is_for_bounds_; }
    /// The doubts of this course that no answer was given for, in the order of their questions.
    const Answers& doubts() const noexcept { return doubts_; }

    /// Answers a question that the log does not answer; the same one twice in the same way.
    bool in_doubt(const Directive* asker, std::string_view question, bool likely)
    {
        const auto is_same = [question](const Doubt& one) { return one.question == question; };
        const auto given = std::find_if(given_.begin(), given_.end(), is_same);
        if (given != given_.end()) {
            return given->answer;
        }
        const auto end = doubts_.begin() + static_cast<std::ptrdiff_t>(asked_);
        const auto asked = std::find_if(doubts_.begin(), end, is_same);
        if (asked != end) {
            return asked->answer;
        }
        if (asked_ == doubts_.size()) {
            doubts_.push_back({ asker, std::string(question), likely });
        }
        return doubts_[asked_++].answer;
    }
    /// How many questions were in doubt until now, in this course.
    std::size_t questions() const noexcept { return asked_; }
    Rewritten& rewritten() noexcept { return rewritten_; }

    const Record& record() const noexcept { return *record_; }
    Escape escape() const noexcept { return escape_; }
    std::uint64_t request() const noexcept { return request_; }

private:
    void restart() noexcept
    {
        asked_ = 0;
        ++request_;
        rewritten_.path.clear();
        rewritten_.args.clear();
        rewritten_.redirected = false;
        rewritten_.captures.clear();
    }

    Escape escape_;
    const Record* record_ = nullptr;
    std::uint64_t request_ = 0;
    Rewritten rewritten_;
    bool is_for_bounds_ = false;
    std::span<const Doubt> given_;
    Answers doubts_;
    std::size_t asked_ = 0;  // of doubts_, in this course
};

/// A variable that can be computed from a line of the log, at most once for a request.
class Variable {
public:
    /// Returns a view of the record, of another variable's value, or of `own`.
    using Function = std::function<std::string_view(Values& values, std::string& own)>;

    /// `changes`: during a request, so that it is computed each time; as in nginx, others are not.
    Variable(Function function, bool changes) : function_(std::move(function)), changes_(changes) {}
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

    /// Valid until the next request, or if it changes, until the next call.
    std::string_view value(Values& values) const
    {
        if (request_ != values.request() || changes_) {
            value_ = function_(values, own_);
            request_ = values.request();
        }
        return value_;
    }

private:
    Function function_;
    bool changes_;
    mutable std::uint64_t request_ = 0;  // for which `value_` is valid
    mutable std::string_view value_;
    mutable std::string own_;  // text that `value_` may refer to
};

/// The value of a variable that the log may not have (null), which is then empty.
inline std::string_view value_of(const Variable* variable, Values& values)
{
    return variable == nullptr ? std::string_view() : variable->value(values);
}

/// A variable that `set` or a named capture gives a value, which is empty before.
class Assigned : public Variable {
public:
    Assigned()
        : Variable(
            [this](Values& values, std::string&) {
                return request_ == values.request() ? std::string_view(text_) : std::string_view();
            },
            true)
    {
    }

    void assign(const Values& values, std::string value) const
    {
        text_ = std::move(value);
        request_ = values.request();
    }

    bool needed = false;  // by a limit, or by what a limit needs

private:
    mutable std::uint64_t request_ = 0;  // for which `text_` is valid
    mutable std::string text_;
};

/// Text with variables.
class Expression {
public:
    struct Part {
        std::string literal;
        const Variable* variable = nullptr;
        std::optional<std::size_t> capture = std::nullopt;  // of the captures that `value` is given
    };

    Expression() = default;
    explicit Expression(std::vector<Part> parts) : parts_(std::move(parts)) {}

    /// Uses `own` if it has to put parts together. Valid until the next request or use of `own`,
    /// and as long as the captures.
    std::string_view value(
        Values& values, std::string& own, std::span<const std::string_view> captures = {}) const
    {
        if (parts_.size() == 1) {
            return text_of(parts_.front(), values, captures);
        }
        std::string whole;
        for (const Part& part : parts_) {
            whole += text_of(part, values, captures);
        }
        own = std::move(whole);
        return own;
    }

private:
    static std::string_view text_of(
        const Part& part, Values& values, std::span<const std::string_view> captures)
    {
        if (part.capture) {
            return *part.capture < captures.size() ? captures[*part.capture] : std::string_view();
        }
        return part.variable == nullptr ? std::string_view(part.literal)
                                        : part.variable->value(values);
    }

    std::vector<Part> parts_;
};

}  // namespace ratelimit::rehearse

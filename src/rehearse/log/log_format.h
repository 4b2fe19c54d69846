#pragma once

#include "rehearse/log/log_time.h"
#include "rehearse/log/record.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// How a log writes the characters of a value that are special.
enum class Escape : std::uint8_t {
    standard,  // nginx's default: \xHH, and a dash for a missing value
    json,      // escape=json: as in a string of JSON
    none,
};

inline constexpr std::string_view combined_format =
    R"($remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent )"
    R"("$http_referer" "$http_user_agent")";

/// The name of the variable at the start of `text`, which begins with a dollar sign; it is removed
/// from the text. Empty: there is none.
std::string take_variable(std::string_view& text);

/// How long a request took: from its first byte to the log line.
inline constexpr std::string_view duration_variable = "request_time";

/// Reads lines of a log. `begin` comes before the first `read`.
class LogFormat {
public:
    virtual ~LogFormat() = default;

    /// The names of the variables that a line has.
    const std::vector<std::string>& names() const noexcept { return names_; }
    /// The place in names(); empty: a line does not have this variable.
    std::optional<std::size_t> index_of(std::string_view name) const noexcept;
    /// What the format is called in messages.
    const std::string& title() const noexcept { return title_; }
    Escape escape() const noexcept { return escape_; }

    /// Records shall have one of names(). Returns its index in them.
    std::size_t want(std::size_t name)
    {
        wanted_.push_back(name);
        return wanted_.size() - 1;
    }
    /// Call after the last `want`. `arrival`: the time of a record is that of the log less
    /// $request_time. `concurrency`: the same, and it has the end of its request. Throws InputError
    /// if the log has no time.
    void begin(bool arrival, bool concurrency);

    /// Reads a line without its line feed. False: the line is broken.
    bool read(std::string_view line, Record& out);

protected:
    LogFormat(std::string title, Escape escape) : title_(std::move(title)), escape_(escape) {}

    /// Sets a view for each of names(). False: the line does not have this format.
    virtual bool split(std::string_view line, std::vector<std::string_view>& values) = 0;

    std::vector<std::string> names_;

private:
    bool is_plausible() const noexcept;

    std::string title_;
    Escape escape_;
    std::vector<std::size_t> wanted_;
    std::size_t time_index_ = 0;
    std::optional<std::size_t> duration_index_;
    bool has_end_ = false;
    std::optional<std::size_t> address_index_;
    std::optional<std::size_t> status_index_;
    LogTime time_{ TimeVariable::time_local };
    std::vector<std::string_view> values_;
};

/// A format as in log_format. Throws InputError if two variables follow each other directly, or if
/// there is none.
std::unique_ptr<LogFormat> text_format(std::string_view format, Escape escape, std::string title);

/// A `log_format`.
struct NamedFormat {
    std::string name;
    std::string text;
    Escape escape = Escape::standard;

    /// Throws InputError as text_format.
    std::unique_ptr<LogFormat> make() const
    {
        return text_format(text, escape, "the log format \"" + name + "\"");
    }
};

/// JSON objects, one a line, whose members are called as nginx's variables, those of the first
/// object in these lines. Null: fewer than `least` of the lines are objects.
std::unique_ptr<LogFormat> json_format(
    const std::vector<std::string>& lines, std::size_t least = 1);

/// A value without its escapes.
void unescape(std::string_view value, Escape escape, std::string& out);

}  // namespace ratelimit::rehearse

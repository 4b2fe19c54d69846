#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// Finds a number in a response while it passes, such as what a language model used: the value of
/// one path of names in a JSON text (RFC 8259), or in the data of server-sent events. The text may
/// be cut anywhere, have any size and be malformed; a scanner keeps the same few bytes. The last
/// value counts. Only whole numbers from 0 to `most` are values. Paths do not lead through arrays,
/// and names with escapes are not found.
class UsageScanner {
public:
    enum class Format : std::uint8_t { json, event_stream };
    static constexpr std::int64_t most = 1'000'000'000'000;

    /// Whether the text is a path: names between dots, at most 16 of at most 64 bytes, without `"`,
    /// `\` and ends of lines, and without what other notations have: `$ [ ] / * > '`.
    static bool is_path(std::string_view path) noexcept;

    /// `path` must outlive the scanner.
    UsageScanner(std::string_view path, Format format) noexcept : path_(path), format_(format) {}

    void read(std::string_view text) noexcept;

    std::optional<std::int64_t> value() const noexcept { return value_; }

private:
    void read_json(std::string_view text) noexcept;
    void read_events(std::string_view text) noexcept;
    std::string_view read_line(std::string_view text) noexcept;
    std::string_view skip(std::string_view text) noexcept;
    std::string_view read_string(std::string_view text) noexcept;
    std::string_view read_number(std::string_view text) noexcept;
    void take(char sign) noexcept;
    void open(bool object) noexcept;
    void close() noexcept;
    void begin_json() noexcept;
    bool at_top() const noexcept { return level_.data() == nullptr; }
    bool is_last_name() const noexcept { return level_.find('.') == level_.npos; }

    std::string_view path_;
    std::optional<std::int64_t> value_;

    // JSON. The objects that are open first are on the path: their names are those of the path.
    // Names matter only where all that is open is on it.
    std::string_view level_;  // the rest of the path, from the last of these objects on; null: none
    std::uint64_t off_ = 0;   // further objects and arrays that are open
    std::uint64_t matched_ = 0;  // bytes of a name that equal the path's so far
    std::int64_t number_ = 0;
    Format format_;
    bool in_string_ = false;
    bool escaped_ = false;       // the next byte of the string follows a backslash
    bool is_name_ = false;       // the string is a name of an object on the path
    bool names_follow_ = false;  // the next string is one
    bool found_ = false;         // the name equals the path's
    bool in_number_ = false;
    bool is_value_ = false;  // the number is a value of the whole path so far

    // Events.
    enum class Line : std::uint8_t { begin, data, other };
    Line line_ = Line::begin;
    std::uint8_t field_ = 0;    // bytes of "data:" at the begin of the line
    bool empty_ = true;         // nothing of the line was read
    bool after_cr_ = false;     // the line before ended with CR, which LF may follow
    bool event_begins_ = true;  // nothing of the event was read
};

}  // namespace ratelimit

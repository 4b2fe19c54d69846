#include "limit/usage_scanner.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

namespace ratelimit {

namespace {

constexpr std::size_t most_names = 16;
constexpr std::size_t longest_name = 64;
constexpr std::string_view data_field = "data:";

bool is_digit(char byte) noexcept
{
    return byte >= '0' && byte <= '9';
}

/// Where the next `"`, `[`, `]`, `{` or `}` is from `at` on, or a place before it.
std::size_t next_sign(std::string_view text, std::size_t at) noexcept
{
    constexpr std::uint64_t each = 0x0101'0101'0101'0101;
    // The lowest byte that is set is the first zero.
    const auto zeros = [](std::uint64_t word) { return (word - each) & ~word & each << 7U; };
    for (std::uint64_t word = 0; text.size() - at >= sizeof(word); at += sizeof(word)) {
        std::memcpy(&word, text.data() + at, sizeof(word));
        // In these bits alone brackets and braces differ from each other, and from `Y`, `y`, `_`.
        const auto found = zeros((word | each * 0x26) ^ each * 0x7f) | zeros(word ^ each * '"');
        if (found != 0) {
            const bool little = std::endian::native == std::endian::little;
            return little ? at + static_cast<std::size_t>(std::countr_zero(found)) / 8 : at;
        }
    }
    return at;
}

/// Bytes up to the end of the last empty line, by which an event ends. Lines that end with CR alone
/// do not count.
std::size_t whole_events(std::string_view text) noexcept
{
    while (true) {
        const void* const found = ::memrchr(text.data(), '\n', text.size());
        if (found == nullptr) {
            return 0;
        }
        const auto size =
            static_cast<std::size_t>(static_cast<const char*>(found) - text.data()) + 1;
        text = text.substr(0, size);
        if (text.ends_with("\n\n") || text.ends_with("\r\n\r\n")) {
            return size;
        }
        text.remove_suffix(1);
    }
}

/// Bytes of the text before the name, or all.
std::size_t position_of(std::string_view name, std::string_view text) noexcept
{
    const void* const found = ::memmem(text.data(), text.size(), name.data(), name.size());
    if (found == nullptr) {
        return text.size();
    }
    return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

/// Bytes of the text before a line ends: with LF, CR LF or CR.
std::size_t length_of_line(std::string_view text) noexcept
{
    const std::size_t end = std::min(text.find('\n'), text.size());
    return std::min(text.substr(0, end).find('\r'), end);
}

}  // namespace

bool UsageScanner::is_path(std::string_view path) noexcept
{
    std::size_t names = 0;
    while (true) {
        const std::string_view name = path.substr(0, path.find('.'));
        if (name.empty() || name.size() > longest_name || ++names > most_names
            || name.find_first_of("\"\\$[]/*>'\r\n") != name.npos) {
            return false;
        }
        if (name.size() == path.size()) {
            return true;
        }
        path.remove_prefix(name.size() + 1);
    }
}

void UsageScanner::read(std::string_view text) noexcept
{
    if (format_ == Format::json) {
        read_json(text);
    } else {
        read_events(text);
    }
}

void UsageScanner::begin_json() noexcept
{
    event_begins_ = true;
    level_ = {};
    off_ = 0;
    in_string_ = escaped_ = names_follow_ = found_ = in_number_ = false;
}

void UsageScanner::open(bool object) noexcept
{
    const bool named = at_top() || (found_ && !is_last_name());
    names_follow_ = off_ == 0 && object && named;
    found_ = false;
    if (!names_follow_) {
        ++off_;
    } else {
        level_ = at_top() ? path_ : level_.substr(level_.find('.') + 1);
    }
}

void UsageScanner::close() noexcept
{
    names_follow_ = found_ = false;
    if (off_ > 0) {
        --off_;
    } else if (level_.size() == path_.size()) {
        level_ = {};
    } else if (!at_top()) {
        const std::string_view before = path_.substr(0, path_.size() - level_.size() - 1);
        level_ = path_.substr(before.rfind('.') + 1);  // npos + 1 is 0
    }
}

/// One byte outside of strings and numbers.
void UsageScanner::take(char sign) noexcept
{
    switch (sign) {
    case '{':
    case '[':
        open(sign == '{');
        break;
    case '}':
    case ']':
        close();
        break;
    case '"':
        in_string_ = true;
        escaped_ = false;
        is_name_ = names_follow_;
        matched_ = 0;
        break;
    case ',':
        names_follow_ = off_ == 0 && !at_top();
        found_ = false;
        break;
    case ':':
        names_follow_ = false;
        break;
    default:
        break;
    }
}

/// Off the path, until it is back on it, only the depth changes; returns what follows, or a string
/// that is cut or may have escapes.
std::string_view UsageScanner::skip(std::string_view text) noexcept
{
    std::uint64_t off = off_;
    std::size_t at = 0;
    while (off > 0 && (at = next_sign(text, at)) < text.size()) {
        const char sign = text[at++];
        if (sign == '"') {
            const std::size_t end = text.find(sign, at);
            if (end == text.npos || text[end - 1] == '\\') {
                take(sign);
                break;
            }
            at = end + 1;
        }
        off += (sign | 0x20) == '{' ? 1 : 0;
        off -= (sign | 0x20) == '}' ? 1 : 0;
    }
    off_ = off;
    return text.substr(at);
}

void UsageScanner::read_json(std::string_view text) noexcept
{
    while (!text.empty()) {
        if (in_string_) {
            text = read_string(text);
        } else if (in_number_) {
            text = read_number(text);
        } else if (off_ > 0) {
            text = skip(text);
        } else if (found_ && (is_digit(text.front()) || text.front() == '-')) {
            in_number_ = true;
            is_value_ = is_last_name();
            number_ = 0;
        } else {
            take(text.front());
            text.remove_prefix(1);
        }
    }
}

/// Returns what follows the string, or nothing. A backslash escapes the byte behind it.
std::string_view UsageScanner::read_string(std::string_view text) noexcept
{
    std::size_t at = std::exchange(escaped_, false) ? 1 : 0;
    std::size_t end = 0;
    while (true) {
        end = std::min(text.find('"', at), text.size());
        std::size_t first = end;
        while (first > at && text[first - 1] == '\\') {
            --first;
        }
        const bool escaped = (end - first) % 2 == 1;
        if (end == text.size()) {
            escaped_ = escaped;
            break;
        }
        if (!escaped) {
            break;
        }
        at = end + 1;
    }
    found_ = false;
    if (is_name_) {
        const std::string_view left = level_.substr(0, level_.find('.')).substr(matched_);
        is_name_ = left.starts_with(text.substr(0, end));
        matched_ += end;
        found_ = is_name_ && left.size() == end;
    }
    if (end == text.size()) {
        return {};
    }
    in_string_ = false;
    return text.substr(end + 1);
}

/// Returns what follows the number, or nothing.
std::string_view UsageScanner::read_number(std::string_view text) noexcept
{
    std::size_t at = 0;
    for (; at < text.size(); ++at) {
        const char sign = text[at];
        if (is_digit(sign)) {
            number_ = std::min(number_ * 10 + (sign - '0'), most + 1);
        } else if (sign == '.' || sign == 'e' || sign == 'E' || sign == '-' || sign == '+') {
            is_value_ = false;
        } else {
            in_number_ = false;
            if (is_value_ && number_ <= most) {
                value_ = number_;
            }
            return text.substr(at);
        }
    }
    return {};
}

/// Lines end with LF, CR LF or CR; an empty one ends an event, whose data is one JSON text. Events
/// without the last name of the path have no value, so they are not read. The name is looked for
/// once up to each place where it is.
void UsageScanner::read_events(std::string_view text) noexcept
{
    const std::string_view name = path_.substr(path_.rfind('.') + 1);
    std::size_t look_again = text.size();  // when at most so many bytes are left
    while (!text.empty()) {
        if (!event_begins_ || text.size() > look_again) {
            text = read_line(text);
            continue;
        }
        const std::size_t at = position_of(name, text);
        look_again = at < text.size() ? text.size() - at - 1 : 0;
        if (const std::size_t size = whole_events(text.substr(0, at)); size > 0) {
            text.remove_prefix(size);
            after_cr_ = false;
        }
    }
}

std::string_view UsageScanner::read_line(std::string_view text) noexcept
{
    const bool at_begin = std::exchange(event_begins_, false);
    const std::size_t end = length_of_line(text);
    std::string_view part = text.substr(0, end);
    if (!part.empty()) {
        empty_ = after_cr_ = false;
    }
    while (line_ == Line::begin && !part.empty()) {
        line_ = part.front() == data_field[field_] ? Line::begin : Line::other;
        part.remove_prefix(1);
        if (line_ == Line::begin && ++field_ == data_field.size()) {
            line_ = Line::data;
        }
    }
    if (line_ == Line::data) {
        read_json(part);
    }
    if (end == text.size()) {
        return {};
    }
    if (line_ == Line::data) {
        read_json("\n");
    }
    const bool second_half = text[end] == '\n' && std::exchange(after_cr_, false);
    if (second_half) {
        event_begins_ = at_begin;
    } else if (empty_) {
        begin_json();
    }
    after_cr_ = text[end] == '\r';
    line_ = Line::begin;
    field_ = 0;
    empty_ = true;
    return text.substr(end + 1);
}

}  // namespace ratelimit
